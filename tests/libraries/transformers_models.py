"""Small random configurations of model families of transformers: what each computes, learns, writes and saves.

Says `import torch`, and is run with PyTorch and with Flambeau in its place; both get the same seeds.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
import transformers

TEXT = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
LLAMA = {**TEXT, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2}  # fmt: skip
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SEQ2SEQ = {"vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
           "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "max_position_embeddings": 64, **ENDS,
           "decoder_start_token_id": 1, "forced_eos_token_id": None}  # fmt: skip
VISION = {"image_size": 32, "patch_size": 8, "num_channels": 3, "hidden_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 37}  # fmt: skip

# family: (configuration class, its settings, model class, kind of input)
FAMILIES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "bert": ("BertConfig", TEXT, "BertForMaskedLM", "masked"),
    "roberta": ("RobertaConfig", {**TEXT, "max_position_embeddings": 64}, "RobertaForMaskedLM", "masked"),
    "distilbert": ("DistilBertConfig", {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
                   "DistilBertForMaskedLM", "masked"),
    "albert": ("AlbertConfig", {**TEXT, "embedding_size": 16}, "AlbertForMaskedLM", "masked"),
    "electra": ("ElectraConfig", {**TEXT, "embedding_size": 16}, "ElectraForMaskedLM", "masked"),
    "deberta_v2": ("DebertaV2Config", {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
                   "DebertaV2ForMaskedLM", "masked"),
    "mpnet": ("MPNetConfig", TEXT, "MPNetForMaskedLM", "masked"),
    "gpt2": ("GPT2Config", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **ENDS},
             "GPT2LMHeadModel", "causal"),
    "gpt_neo": ("GPTNeoConfig", {"vocab_size": 99, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "intermediate_size": 37,
                                 "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64, "window_size": 4,
                                 **ENDS}, "GPTNeoForCausalLM", "causal"),
    "gptj": ("GPTJConfig", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64, **ENDS},
             "GPTJForCausalLM", "causal"),
    "gpt_neox": ("GPTNeoXConfig", {**TEXT, "max_position_embeddings": 64, **ENDS}, "GPTNeoXForCausalLM", "causal"),
    "llama": ("LlamaConfig", LLAMA, "LlamaForCausalLM", "causal"),
    "mistral": ("MistralConfig", {**LLAMA, "sliding_window": 6}, "MistralForCausalLM", "causal"),
    "mixtral": ("MixtralConfig", {**LLAMA, "intermediate_size": 40, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True},
                "MixtralForCausalLM", "causal"),
    "qwen2": ("Qwen2Config", LLAMA, "Qwen2ForCausalLM", "causal"),
    "qwen3": ("Qwen3Config", {**LLAMA, "head_dim": 8}, "Qwen3ForCausalLM", "causal"),
    "gemma": ("GemmaConfig", {**LLAMA, "head_dim": 8}, "GemmaForCausalLM", "causal"),
    "gemma2": ("Gemma2Config", {**LLAMA, "head_dim": 8, "sliding_window": 6}, "Gemma2ForCausalLM", "causal"),
    "phi": ("PhiConfig", {**LLAMA, "num_key_value_heads": 4}, "PhiForCausalLM", "causal"),
    "phi3": ("Phi3Config", LLAMA, "Phi3ForCausalLM", "causal"),
    "falcon": ("FalconConfig", {**{k: v for k, v in TEXT.items() if k != "intermediate_size"}, **ENDS}, "FalconForCausalLM", "causal"),
    "opt": ("OPTConfig", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 37, "num_attention_heads": 4,
                          "max_position_embeddings": 64, "word_embed_proj_dim": 32, **ENDS}, "OPTForCausalLM", "causal"),
    "bloom": ("BloomConfig", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4, **ENDS}, "BloomForCausalLM", "causal"),
    "mamba": ("MambaConfig", {"vocab_size": 99, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2, **ENDS},
              "MambaForCausalLM", "causal"),
    "mamba2": ("Mamba2Config", {"vocab_size": 99, "hidden_size": 32, "num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2,
                                "num_hidden_layers": 2, "chunk_size": 4, **ENDS}, "Mamba2ForCausalLM", "causal"),
    "stablelm": ("StableLmConfig", LLAMA, "StableLmForCausalLM", "causal"),
    "cohere": ("CohereConfig", LLAMA, "CohereForCausalLM", "causal"),
    "olmo": ("OlmoConfig", LLAMA, "OlmoForCausalLM", "causal"),
    "t5": ("T5Config", {"vocab_size": 99, "d_model": 32, "d_ff": 37, "d_kv": 8, "num_layers": 2, "num_heads": 4,
                        "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 2}, "T5ForConditionalGeneration", "seq2seq"),
    "bart": ("BartConfig", SEQ2SEQ, "BartForConditionalGeneration", "seq2seq"),
    "pegasus": ("PegasusConfig", SEQ2SEQ, "PegasusForConditionalGeneration", "seq2seq"),
    "marian": ("MarianConfig", SEQ2SEQ, "MarianMTModel", "seq2seq"),
    "vit": ("ViTConfig", VISION, "ViTForImageClassification", "image"),
    "deit": ("DeiTConfig", VISION, "DeiTForImageClassification", "image"),
    "beit": ("BeitConfig", VISION, "BeitForImageClassification", "image"),
    "swin": ("SwinConfig", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 2],
                            "window_size": 4}, "SwinForImageClassification", "image"),
    "convnext": ("ConvNextConfig", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, "ConvNextForImageClassification",
                 "image"),
    "resnet": ("ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
               "ResNetForImageClassification", "image"),
    "dinov2": ("Dinov2Config", {**VISION, "mlp_ratio": 2}, "Dinov2ForImageClassification", "image"),
    "whisper": ("WhisperConfig", {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32,
                                  "suppress_tokens": None, "begin_suppress_tokens": None}, "WhisperForConditionalGeneration", "speech"),
    "wav2vec2": ("Wav2Vec2Config", {**TEXT, "conv_dim": [8, 8], "conv_stride": [4, 4], "conv_kernel": [8, 4],
                                    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
                                    "mask_time_prob": 0.0, "pad_token_id": 0, "feat_extract_norm": "group"}, "Wav2Vec2ForCTC", "ctc"),
    "hubert": ("HubertConfig", {**TEXT, "conv_dim": [8, 8], "conv_stride": [4, 4], "conv_kernel": [8, 4],
                                "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
                                "mask_time_prob": 0.0, "pad_token_id": 0}, "HubertForCTC", "ctc"),
    "clip": ("CLIPConfig", {"text_config": {**TEXT, "max_position_embeddings": 16, **ENDS}, "vision_config": VISION,
                            "projection_dim": 16}, "CLIPModel", "pairs"),
    "siglip": ("SiglipConfig", {"text_config": {**TEXT, "max_position_embeddings": 12, "projection_size": 32},
                                "vision_config": VISION}, "SiglipModel", "pairs"),
    "sam": ("SamConfig", {"vision_config": {"image_size": 32, "patch_size": 4, "hidden_size": 32, "num_hidden_layers": 2,
                                            "num_attention_heads": 4, "output_channels": 16, "global_attn_indexes": [1],
                                            "mlp_dim": 37, "window_size": 4, "num_pos_feats": 8},
                          "prompt_encoder_config": {"hidden_size": 16, "image_size": 32, "patch_size": 4, "mask_input_channels": 8},
                          "mask_decoder_config": {"hidden_size": 16, "mlp_dim": 37, "num_attention_heads": 4,
                                                  "iou_head_hidden_dim": 16}}, "SamModel", "points"),
}  # fmt: skip


def made(family: str) -> Any:
    """The model of a family, with weights from the seed 0."""
    config_name, settings, model_name, _ = FAMILIES[family]
    config = getattr(transformers, config_name)(**settings)
    torch.manual_seed(0)
    return getattr(transformers, model_name)(config)


def batch(kind: str) -> dict[str, Any]:
    """Inputs of a kind, the same for both."""
    numbers = np.random.default_rng(0)
    ids = torch.tensor(numbers.integers(3, 99, (2, 12)))
    floats = lambda *shape: torch.tensor(numbers.standard_normal(shape).astype("float32"))  # noqa: E731
    if kind in ("masked", "causal", "seq2seq"):
        seen = torch.ones_like(ids)
        seen[1, 9:] = 0
        return {"input_ids": ids, "attention_mask": seen, "labels": ids.clone()}
    if kind == "image":
        return {"pixel_values": floats(2, 3, 32, 32), "labels": torch.tensor([0, 1])}
    if kind == "speech":
        return {"input_features": floats(2, 8, 32), "labels": ids[:, :6]}
    if kind == "ctc":
        return {"input_values": floats(2, 400), "labels": ids[:, :5]}
    if kind == "pairs":
        return {"input_ids": ids, "pixel_values": floats(2, 3, 32, 32), "return_loss": True}
    return {"pixel_values": floats(1, 3, 32, 32), "input_points": torch.tensor([[[[4.0, 9.0]]]])}


def loss_of(output: Any) -> Any:
    loss = getattr(output, "loss", None)
    return output.pred_masks.square().mean() + output.iou_scores.sum() if loss is None else loss


def result_of(output: Any) -> Any:
    for name in ("logits", "logits_per_image", "pred_masks"):
        found = getattr(output, name, None)
        if found is not None:
            return found
    raise AttributeError(f"no result in {type(output).__name__}")


def prompt_of(inputs: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind == "speech":
        return {"input_features": inputs["input_features"]}
    return {"input_ids": inputs["input_ids"][:, :6]}


def generated(model: Any, inputs: dict[str, Any], kind: str) -> dict[str, Any]:
    """Tokens from the prompt: the likeliest, also with a cache of fixed length, by beams, and drawn with a seed."""
    prompt = prompt_of(inputs, kind)
    common = {"max_new_tokens": 8, "do_sample": False}
    found = {"greedy": model.generate(**prompt, **common)}
    if kind != "speech":
        found["beams"] = model.generate(**prompt, **common, num_beams=2)
    if kind == "causal" and getattr(model, "_can_compile_fullgraph", False):
        found["static cache"] = model.generate(**prompt, **common, cache_implementation="static")
    torch.manual_seed(1)
    drawn = {"top_k": 20, "top_p": 0.95, "temperature": 0.9}
    found["sampled"] = model.generate(**prompt, max_new_tokens=8, do_sample=True, **drawn)
    return found


def run(family: str, own: str, other: str | None) -> dict[str, Any]:
    """Everything a family is asked; models are saved under `own`, and those that the other library saved are loaded."""
    kind = FAMILIES[family][3]
    model, inputs = made(family).eval(), batch(kind)
    found: dict[str, Any] = {"weights": sum(float(p.detach().double().abs().sum()) for p in model.parameters())}
    output = model(**inputs)
    loss_of(output).backward()
    found["loss"], found["result"] = loss_of(output), result_of(output)
    found["gradients"] = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    if kind in ("causal", "seq2seq", "speech"):
        found.update(generated(model, inputs, kind))
    model.save_pretrained(os.path.join(own, family))
    if other is not None and os.path.isdir(os.path.join(other, family)):
        again = type(model).from_pretrained(os.path.join(other, family)).eval()
        with torch.no_grad():
            found["loaded"] = result_of(again(**inputs))
    found["steps"] = trained(model, inputs)
    return found


def trained(model: Any, inputs: dict[str, Any]) -> list[float]:
    """Losses of three steps with dropout on."""
    model.train()
    model.zero_grad()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(2)
    losses = []
    for _ in range(3):
        loss = loss_of(model(**inputs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
