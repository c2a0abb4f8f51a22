"""The model behind a collection: loaded once, when a question first needs it."""

import gc
import threading
from contextlib import suppress
from pathlib import Path

from core.answers import Progress
from core.explorer.page_first import let_pages_go_first, standing_back
from core.explorer.queries import Queries


class WithModel(Queries):
    """A collection whose model loads when it is first asked for, or before."""

    def __init__(self, path: Path):
        super().__init__(path)
        self._opening, self._waking = threading.Lock(), threading.Lock()
        self._engine = None
        self._loader = None

    @property
    def engine(self):
        """The model behind this collection, loaded when first asked for."""
        # Imported here because torch and diffusers take seconds to load, and the
        # gallery's stored answers need neither.
        from core.engine.engine import Engine

        with self._opening:
            if self._engine is None:
                self._engine = Engine(self._collection)
            return self._engine

    @property
    def device_name(self) -> str:
        """The card that answers, or "CPU"."""
        if not Path("/dev/nvidia0").exists():  # asking torch would load it
            return "CPU"
        import torch

        if not torch.cuda.is_available():
            return "CPU"
        return torch.cuda.get_device_name()

    def wake(self) -> None:
        """Begin to load the model, in a thread of its own; more calls do nothing."""
        with self._waking:
            if self._loader is None:
                self._loader = threading.Thread(target=self._warm_up, daemon=True)
                self._loader.start()

    @property
    def awake(self) -> bool:
        """Whether the model is loaded, so that asking it holds nobody up."""
        return self._loader is not None and not self._loader.is_alive()

    def _warm_up(self) -> None:
        """Load what a new question needs, as far as the files that came along allow."""
        # What a file lacks is said where a question needs it.
        with suppress(LookupError, ValueError), standing_back():
            self.engine.warm_up()
        # Loading CLIP takes as long again, and few questions wait for it.
        threading.Thread(target=self._warm_up_clip, daemon=True).start()

    def _warm_up_clip(self) -> None:
        with suppress(LookupError, ValueError), standing_back():
            _ = self.engine.clip

    def _wait_for_model(self, progress: Progress | None) -> None:
        """Let the model be loaded; whoever waits for it can stop meanwhile."""
        if progress is None:
            return
        self.wake()
        if not self._loader.is_alive():
            return
        while self._loader.is_alive():
            progress(0, 1, "Loading the model")
            # A server collects garbage after every page run, and the pages of those who
            # wait run often: walking through a half loaded torch took most of the time.
            gc.freeze()
            self._loader.join(0.2)
        let_pages_go_first(progress, "Loading the model")
