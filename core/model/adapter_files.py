"""Files of adapters: what kind each is, and whether a LoRA in it is whole.

People are given adapters of many kinds under the one name LoRA. Which kind a file is
shows in the names of its tensors. Only two small layers around each that is adapted can
be attributed; anything beyond them is refused by name. This file knows nothing of the
model that a LoRA belongs to.
"""

import re
from collections.abc import Mapping

from torch import Tensor

from core.model.weight_files import check_finite

# What the names of tensors say of a file, as its training tool writes them; the first
# that fits counts.
KINDS = (
    (r"\.hada_[wt]\d", "is a LoHa"),
    (r"\.lokr_[wt]\d", "is a LoKr"),
    (r"\.lora_mid\.", "is a LoRA of three layers (CP, or Tucker's form)"),
    (r"dora_scale|magnitude_vector", "is a DoRA"),
    (r"ia3_l|\.on_input$", "is an IA3"),
    (r"boft_[RsP]", "is a BOFT"),
    (r"\.oft_(blocks|diag|r|R)\b", "is an OFT"),
    (r"\.(a1|a2|b1|b2|bm1|bm2)\.weight$", "is a GLoRA"),
    (r"vera_lambda|vera_A", "is a VeRA"),
    (r"\.lora_E\b|ranknum", "is an AdaLoRA"),
    (r"(up|down)_list\.\d", "is a DyLoRA"),
    (r"\.(w|b)_norm$", "holds trained norms (LyCORIS)"),
    (r"\.diff(_b)?$", "holds whole layers (LyCORIS, full)"),
    (r"lora_controlnet|controlnet_cond_embedding|^control_model\.", "is a ControlNet"),
    (r"^(image_proj|ip_adapter)\b", "is an IP-Adapter"),
    (r"_custom_diffusion\b", "is of Custom Diffusion"),
    (
        r"string_to_param|^(emb_params|clip_l|clip_g)$|^<[^<>]+>$",
        "is a text embedding (textual inversion)",
    ),
    (r"^bundle_emb\.", "holds a text embedding (textual inversion) beside the LoRA"),
    (r"lora_[AB](\.\w+)?\.bias$|lora_(up|down)\.bias$", "is a LoRA with biases"),
    (r"lora_embedding_[AB]", "is a LoRA of an embedding"),
    (r"^(lora_te[23]_|text_encoder_[23]\.)", "is for a model of two texts (as SDXL)"),
    (
        r"^(transformer\.|lora_transformer_|lora_unet_(double|single|joint)_blocks)",
        "is for a diffusion transformer (as SD 3 or Flux)",
    ),
)
WHOLE = re.compile(
    r"^(model\.diffusion_model|first_stage_model|cond_stage_model|unet|vae)\.|"
    r"^(down_blocks|mid_block|up_blocks|conv_in|time_embedding)\."
)
_PAIR = re.compile(
    r"(?P<layer>.*?)[._](?P<kind>lora_(down|up|A|B)|lora\.(down|up)|"
    r"lora_linear_layer\.(down|up))(\.[A-Za-z]\w*)?\.weight"
)
ONLY = "Only a plain LoRA of Linear and Conv2d layers can be attributed."


def check_adapter(weights: Mapping[str, Tensor], name: str) -> None:
    """Refuse a file that holds anything but a whole LoRA, in any of its spellings.

    Those of kohya's scripts, of diffusers today and before, and of peft.

    Args:
        weights: By the names in the file.
        name: Of the file, for people.

    Raises:
        ValueError: If it is of another kind, a tensor is missing or surplus, there are
            none, or weights are not numbers.
    """
    for pattern, kind in KINDS:
        if any(re.search(pattern, tensor) for tensor in weights):
            raise ValueError(f"'{name}' {kind}. {ONLY}")
    if not any("lora" in tensor for tensor in weights):
        if any(WHOLE.match(tensor) for tensor in weights):
            raise ValueError(
                f"'{name}' holds a whole model, not a LoRA. Give it as the model, in "
                "the folder that `pipeline.save_pretrained` writes."
            )
        first = f" '{next(iter(weights))}'" if weights else " nothing"
        raise ValueError(f"'{name}' is not a LoRA; it holds{first}. {ONLY}")
    check_finite(weights.items(), f"'{name}'")
    _check_pairs(weights, name)


def _check_pairs(weights: Mapping[str, Tensor], name: str) -> None:
    """Refuse small layers without their other, and tensors that are not part of one."""
    pairs: dict[str, dict[str, str]] = {}
    alphas = []
    for tensor in weights:
        if (pair := _PAIR.fullmatch(tensor)) is not None:
            down = pair["kind"].endswith(("down", "A"))
            pairs.setdefault(pair["layer"], {})["down" if down else "up"] = tensor
        elif tensor.endswith(".alpha"):
            alphas.append(tensor)
        else:
            raise ValueError(
                f"'{name}' holds '{tensor}', which is not part of a LoRA. {ONLY}"
            )
    for tensors in pairs.values():
        if len(tensors) < 2:
            (there,) = tensors.values()
            raise ValueError(
                f"'{name}' holds '{there}' without the other small layer of its pair. "
                "Save the LoRA again, or copy the file again."
            )
        down, up = weights[tensors["down"]], weights[tensors["up"]]
        if down.ndim < 2 or up.ndim < 2 or down.shape[0] != up.shape[1]:
            raise ValueError(
                f"'{name}' holds '{tensors['down']}' of shape {tuple(down.shape)} and "
                f"'{tensors['up']}' of shape {tuple(up.shape)}, whose ranks differ. "
                "Save the LoRA again."
            )
    for tensor in alphas:
        if tensor.removesuffix(".alpha") not in pairs:
            raise ValueError(
                f"'{name}' holds '{tensor}' without the layer that it scales. Save the "
                "LoRA again."
            )
