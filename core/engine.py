"""The part of an explorer that needs the model: generate, encode, measure, score.

Loading torch and diffusers takes seconds, so `core.explorer` imports this file only
when a question needs it. Knows nothing about pages or stored answers.
"""

import gc
import os
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from core.clip import GLYPHS_CLIP_PATH, clip_similarity, load_clip
from core.curvature import Eigenbasis
from core.diffusion import Denoiser, denoiser_from_bytes, to_pixels
from core.draws import keyed_generator
from core.index import GradientIndex, balance
from core.influence import centred, fold_statistics
from core.parameters import Layout, parameter_layout
from core.query import rotated_query
from core.sketch import Sketch, collection_sketch, packed_products
from core.store import Collection, file_sha256

# Packing to one bit multiplies the variance of a sketched product by pi / 2.
ONE_BIT_VARIANCE = np.pi / 2


class Engine:
    """The model of a collection, its curvature and its gradient index.

    Args:
        collection: An open collection.

    Attributes:
        lock: Held while the model runs: one question at a time.
    """

    def __init__(self, collection: Collection):
        self.collection = collection
        self.seed = int(collection.meta("settings")["seed"])
        self.lock = threading.RLock()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        # One core stays free for the pages and the browser: threads of one product wait
        # for each other by spinning, which takes most of the time when none is free.
        torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
        # What the imports made stays for good. A server that collects garbage after
        # every page run would walk through it: half a second each, all threads halted.
        gc.freeze()

    @cached_property
    def denoiser(self) -> Denoiser:
        """The diffusion model, on the fastest device there is."""
        denoiser = denoiser_from_bytes(self.collection.blob("denoiser"))
        return denoiser.to(self.device)

    @cached_property
    def layout(self) -> Layout:
        """The layers that count."""
        return parameter_layout(self.denoiser.unet)

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Corrected eigenvalues, shape (P,)."""
        return torch.from_numpy(self.collection.array("eigenvalues"))

    @cached_property
    def basis(self) -> Eigenbasis:
        """The Kronecker eigenbasis, from the file beside the collection."""
        path = self._beside("eigenvectors")
        tensors = load_file(path)
        numbers = range(len(self.layout.layers))
        basis = Eigenbasis(
            self.layout,
            tuple(tensors[f"input.{i}"] for i in numbers),
            tuple(tensors[f"gradient.{i}"] for i in numbers),
        )
        return basis.to(self.device)

    @cached_property
    def sketch(self) -> Sketch:
        """The random sketch of the collection.

        Raises:
            ValueError: If this program draws other random numbers than the one that
                made the collection.
        """
        facts = self.collection.meta("sketch")
        sketch = collection_sketch(self.seed, self.layout.num_params, facts["dim"])
        if sketch.checksum() != facts["checksum"]:
            raise ValueError(
                "This version of torch draws other random numbers than the one that "
                f"made the collection: sketch {sketch.checksum()} here, "
                f"{facts['checksum']} there. Build the collection again."
            )
        return sketch

    @cached_property
    def packed(self) -> tuple[np.ndarray, np.ndarray]:
        """Sign bits (N, k / 8) and scales (N,) of all examples."""
        return self.collection.array("sketch_bits"), self.collection.array(
            "sketch_scale"
        )

    @cached_property
    def clip(self):
        """The CLIP model that made the collection's embeddings.

        Raises:
            ValueError: If the model file is another one.
        """
        facts, digest = self.collection.meta("clip"), file_sha256(GLYPHS_CLIP_PATH)
        if digest != facts["sha256"]:
            raise ValueError(
                f"The pictures were embedded by CLIP model {facts['sha256'][:12]}, but "
                f"'{GLYPHS_CLIP_PATH.name}' is {digest[:12]}. Build the "
                "collection again."
            )
        return load_clip(device=str(self.device))

    def _beside(self, kind: str) -> Path:
        """Return the path of a file beside the collection.

        Raises:
            LookupError: If it did not come along.
        """
        for shard in self.collection.shards():
            if shard.layout["kind"] == kind:
                path = self.collection.shard_path(shard)
                if path.exists():
                    return path
                raise LookupError(
                    f"The file '{shard.file}' is not beside the collection. Copy it "
                    "there, or build the collection again."
                )
        raise LookupError(f"The collection catalogues no {kind}. Build it again.")

    def full_index(self) -> GradientIndex | None:
        """Return the full index, or None when its shards did not come along."""
        shards = [s for s in self.collection.shards() if s.layout["kind"] == "codes"]
        paths = [self.collection.shard_path(shard) for shard in shards]
        if not paths or not all(path.exists() for path in paths):
            return None
        num_examples = sum(shard.num_examples for shard in shards)
        # Collections of before there was a choice hold 8 bits and do not say so.
        bits = shards[0].layout.get("bits", 8)
        num_params = self.layout.num_params
        return GradientIndex(paths[0].parent, num_examples, num_params, bits)

    def warm_up(self) -> None:
        """Load and compile everything that an influence answer needs."""
        with self.lock:
            _ = self.denoiser, self.basis, self.eigenvalues, self.sketch
            bits, scales = self.packed
            nothing = torch.zeros(1, 8 * bits.shape[1])
            packed_products(nothing, bits[:1], scales[:1])

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        """Return x_0 of a picture (C, H, W) in uint8, float32."""
        images = torch.from_numpy(pixels.copy())[None].float() / 127.5 - 1
        with self.lock:
            return self.denoiser.encode(images.to(self.device))[0].cpu().numpy()

    def generate(
        self,
        label: int | None,
        seed: int,
        sampler: str,
        num_steps: int,
        guidance_scale: float,
        on_step: Callable[[int, int], None] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a new sample: x_0 (C', H', W') and its picture (C, H, W) in uint8."""
        with self.lock:
            trajectory = self.denoiser.sample(
                [keyed_generator(self.seed, "sample", seed)],
                None if label is None else torch.tensor([label]),
                sampler,
                num_steps,
                guidance_scale=guidance_scale,
                on_step=on_step,
            )[0]
            x_0 = trajectory.states[-1]
            image = self.denoiser.decode(x_0[None].to(self.device))[0]
        return x_0.numpy(), to_pixels(image)

    def influence(
        self,
        x_0: np.ndarray,
        label: int | None,
        measurement: str,
        num_draws: int,
        damping: float | None,
        form: str,
        on_step: Callable[[int, int], None] | None = None,
    ) -> tuple[np.ndarray, np.ndarray, float, str]:
        """Return centred scores (N,), standard errors (N,), the value, and the source.

        The standard error adds three variances: of the training draws (predicted from
        the noise of each coordinate and of each example), of the query draws (the
        spread of its folds), and of the sketch, where one is used.

        Args:
            x_0: Clean example, shape (C, H, W).
            label: Class index, or None.
            measurement: What is measured.
            num_draws: Monte Carlo draws of the query gradient.
            damping: Added to the eigenvalues; None for the collection's own.
            form: "full" for the full index, else the sketch.
            on_step: Called with (steps done, steps in all); may raise to stop.

        Raises:
            LookupError: If the full index is asked for and is not there.
        """
        index = self.full_index() if form == "full" else None
        if form == "full" and index is None:
            raise LookupError(
                "The full index did not come with this collection. Ask with the "
                "sketch, or build the collection here: `python -m precompute build`."
            )
        own = float(self.collection.meta("damping"))
        with self.lock:
            rotated, value = rotated_query(
                self.denoiser,
                self.basis,
                measurement,
                torch.from_numpy(x_0),
                label,
                num_draws,
                self.seed,
                on_step,
            )
            rotated = rotated.cpu()
            # Everything below is in coordinates whitened at the collection's own
            # damping.
            whitened = rotated * (self.eigenvalues + own).sqrt()
            whitened /= self.eigenvalues + (own if damping is None else damping)
            mean = whitened.mean(0)
            if index is not None:
                weights = balance(self._rms(index)) / (self.eigenvalues + own).sqrt()
                products = index.scores(torch.cat([mean[None], whitened]) * weights)
                sketch_variance = 0.0
            else:
                sketched = self.sketch.apply(torch.cat([mean[None], whitened]))
                products = packed_products(sketched, *self.packed)
                norms = self.collection.array("whitened_norm").astype(np.float64)
                sketch_variance = ONE_BIT_VARIANCE * float(mean.square().sum())
                sketch_variance = (
                    sketch_variance * norms**2 / self.sketch.order.shape[0]
                )
        scores = centred(products[0])
        _, query_error = fold_statistics(centred(products[1:]))
        variance = self._training_variance(mean) + query_error**2 + sketch_variance
        source = "sketch" if index is None else "full index"
        return scores, np.sqrt(variance), value, source

    def _training_variance(self, mean: Tensor) -> np.ndarray:
        """Return the variance that the training draws leave in each score, (N,)."""
        noise = torch.from_numpy(self.collection.array("whitened_noise")).float()
        level = self.collection.array("noise_level").astype(np.float64)
        spread = float((mean.square() * noise.square()).sum())
        return self.collection.meta("noise_calibration") * spread * level

    def _rms(self, index: GradientIndex) -> Tensor:
        return torch.from_numpy(np.fromfile(index.folder / "rms.bin", "<f4"))

    @cached_property
    def embeddings(self) -> np.ndarray:
        """CLIP embeddings of all examples, shape (N, D)."""
        return self.collection.array("clip")

    def clip_scores(self, pixels: np.ndarray) -> np.ndarray:
        """Return the CLIP similarity of a picture (C, H, W) with all examples, (N,)."""
        with self.lock:
            query = self.clip.embed_images(pixels[None])
        return clip_similarity(query, self.embeddings)[0].astype(np.float64)

    def text_scores(self, text: str) -> np.ndarray:
        """Return the CLIP similarity of a text with all examples, shape (N,)."""
        with self.lock:
            query = self.clip.embed_texts([text])
        return clip_similarity(query, self.embeddings)[0].astype(np.float64)
