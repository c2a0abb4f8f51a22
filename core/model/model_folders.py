"""Where the parts of a saved model lie: in a pipeline, a checkpoint, or a bare UNet.

`pipeline.save_pretrained` writes a folder for each part. The checkpoints of diffusers'
training scripts, `checkpoint-500`, hold the UNet alone, perhaps beside a running
average of its weights, `unet_ema`, and the states of the optimizer, which nothing here
opens. This file knows which folder is which, and nothing of what is in them.
"""

import json
from dataclasses import dataclass
from pathlib import Path

SETTINGS = ("config.json", "scheduler_config.json")
OWN = "own.safetensors"  # of a network of one's own, alone in its folder
WRITTEN = "Give the folder that `pipeline.save_pretrained` wrote."


@dataclass(frozen=True)
class SavedModel:
    """A model that others saved, and which of its parts are wanted.

    Attributes:
        folder: Of a pipeline, of a checkpoint, or of a UNet alone.
        lora: Folder or file of a LoRA, which is then all that is attributed.
        unet: The sub-folder of the UNet; "" for the default.
        scheduler: File or folder of the noise schedule; None for the model's own.
    """

    folder: Path
    lora: Path | None = None
    unet: str = ""
    scheduler: Path | None = None

    @property
    def own(self) -> Path | None:
        """The file of a network of one's own (`core.model.own`), if it is one."""
        path = self.folder / OWN
        return path if path.is_file() else None

    def unet_folder(self) -> Path:
        """Return the folder of the UNet.

        Raises:
            ValueError: If there is none.
            FileNotFoundError: If there is no such folder at all.
        """
        if self.folder.is_file():
            raise ValueError(
                f"'{self.folder.name}' is a file. Convert it to diffusers' folders "
                "with `StableDiffusionPipeline.from_single_file(...)` and its "
                "`save_pretrained`, and give the folder."
            )
        if not self.folder.is_dir():
            raise FileNotFoundError(f"There is no folder '{self.folder}'. {WRITTEN}")
        for folder in (self.folder / (self.unet or "unet"), self._itself()):
            if folder is not None and (folder / "config.json").is_file():
                return folder
        raise ValueError(self._no_unet())

    def _itself(self) -> Path | None:
        """Return the folder if it may be that of a UNet alone."""
        bare = not self.unet and not (self.folder / "unet").is_dir()
        return self.folder if bare else None

    def _no_unet(self) -> str:
        """Return what is there in the place of a UNet, and what to do."""
        names = sorted(path.name for path in self.folder.iterdir())
        unets = [
            name for name in names if (self.folder / name / "config.json").exists()
        ]
        unets = [name for name in unets if name.startswith("unet")]
        checkpoints = [name for name in names if name.startswith("checkpoint-")]
        checkpoints.sort(key=lambda name: (len(name), name))  # as numbers, the last one
        sentence = (
            f"'{self.folder.name}' has no '{self.unet or 'unet'}' folder with its "
            f"settings; it holds {', '.join(names[:8]) or 'nothing'}. "
        )
        if unets:
            return f"{sentence}Choose with --unet: {', '.join(unets)}."
        if checkpoints:
            return (
                f"{sentence}Give one of its checkpoints, such as '{checkpoints[-1]}'."
            )
        return sentence + WRITTEN

    def folders(self) -> list[Path]:
        """Return the folders that may hold the other parts, the nearest first.

        A checkpoint lies in the folder where training wrote the whole pipeline at its
        end, and a UNet alone beside the other parts, or in a checkpoint.
        """
        folder = self.folder.resolve()
        folders = [folder]
        if self.unet_folder() == self.folder:
            folder = folder.parent
            folders.append(folder)
        if folder.name.startswith("checkpoint-"):
            folders.append(folder.parent)
        return folders

    def part(self, *names: str) -> Path | None:
        """Return the folder of another part by one of its names, None without one."""
        return next(
            (
                folder / name
                for folder in self.folders()
                for name in names
                if (folder / name).is_dir()
            ),
            None,
        )

    def scheduler_file(self) -> Path:
        """Return the file of the noise schedule.

        Raises:
            ValueError: If there is none.
        """
        if self.scheduler is not None:
            inside = [
                self.scheduler / sub / name
                for sub in ("", "scheduler")
                for name in SETTINGS
            ]
            existing = [path for path in (self.scheduler, *inside) if path.is_file()]
            if not existing:
                raise ValueError(
                    f"'{self.scheduler}' is not a file of a scheduler's settings, nor "
                    "a folder with a 'scheduler_config.json'."
                )
            # A pipeline's own config.json would be that of another part.
            return min(existing, key=lambda path: path.name == "config.json")
        folder = self.part("scheduler")
        files = [] if folder is None else [folder / name for name in SETTINGS]
        existing = [path for path in files if path.is_file()]
        if not existing:
            raise ValueError(
                f"'{self.folder.name}' has no 'scheduler' folder with its settings, "
                "which say what noise the model was trained with. Give the folder or "
                "file of the scheduler with --scheduler."
            )
        return existing[-1]

    def remarks(self) -> list[str]:
        """Return which parts were chosen where that may surprise, a line for each."""
        if self.own is not None:
            return []
        unet, lines = self.unet_folder(), []
        others = [
            path.name
            for path in sorted(self.folder.glob("unet*"))
            if path != unet and (path / "config.json").is_file()
        ]
        if others or self.unet:
            also = "".join(f"; --unet {name} chooses '{name}'" for name in others)
            lines.append(f"UNet: '{unet.name}'{also}")
        near = self.folder.resolve()
        for name in ("scheduler", "vae", "vqvae", "tokenizer", "text_encoder"):
            folder = None if name == "scheduler" and self.scheduler else self.part(name)
            if folder is not None and folder.parent != near:
                lines.append(
                    f"{name}: from the folder around it, '{folder.parent.name}'"
                )
        return lines


def read_settings(file: Path) -> dict:
    """Return the settings in a file.

    Raises:
        ValueError: If they cannot be read.
    """
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        settings = None
    if not isinstance(settings, dict):
        raise ValueError(
            f"'{file.parent.name}/{file.name}' does not hold settings in JSON. Save "
            "the model again."
        )
    return settings
