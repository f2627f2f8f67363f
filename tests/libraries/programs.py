"""Short programs with other people's libraries, one function each: what it returns is compared between PyTorch and Flambeau.

Says `import torch`, and is run with PyTorch and with Flambeau in its place; both get the same seeds.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

Found = dict[str, Any]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def weights_of(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3))


def points(count: int = 48) -> TensorDataset:
    x = numbers(count, 8)
    return TensorDataset(x, x[:, :3].argmax(1))


def small_bert(**settings: Any) -> Any:
    from transformers import BertConfig

    common = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
    }
    return BertConfig(**common, **settings)


def small_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=99, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    )  # fmt: skip


class Sentences(Dataset):
    """Random token ids with labels, as a data set of dictionaries."""

    def __init__(self, count: int = 24, labels: int = 2):
        r = np.random.default_rng(0)
        self.ids, self.labels = r.integers(3, 99, (count, 10)), r.integers(0, labels, count)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, Any]:
        ids = torch.tensor(self.ids[i])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(self.labels[i])}


# -- training loops of others --------------------------------------------------------------------------------------------


def trainer(own: str, other: str | None) -> Found:
    """transformers' Trainer: two epochs with a schedule, evaluation, checkpoints and a resumed run."""
    from transformers import BertForSequenceClassification, Trainer, TrainingArguments

    def start(epochs: int, folder: str) -> Any:
        torch.manual_seed(0)
        model = BertForSequenceClassification(small_bert())
        arguments = TrainingArguments(
            output_dir=folder, num_train_epochs=epochs, per_device_train_batch_size=8, learning_rate=1e-3, logging_steps=1,
            lr_scheduler_type="cosine", warmup_steps=2, weight_decay=0.01, max_grad_norm=1.0, save_strategy="epoch", seed=3,
            report_to=[], disable_tqdm=True, use_cpu=True, gradient_accumulation_steps=1, label_smoothing_factor=0.1,
        )  # fmt: skip
        return Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences(8))

    run = start(2, os.path.join(own, "trainer"))
    run.train()
    losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    predicted = run.predict(Sentences(8))
    again = start(3, os.path.join(own, "trainer"))
    again.train(resume_from_checkpoint=True)
    more = [entry["loss"] for entry in again.state.log_history if "loss" in entry]
    return {"losses": losses, "evaluation": run.evaluate()["eval_loss"], "logits": predicted.predictions, "resumed": more,
            "weights": weights_of(again.model)}  # fmt: skip


def accelerate(own: str, other: str | None) -> Found:
    """accelerate: a prepared loop with accumulated gradients, clipping, and a saved state that goes on."""
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(5)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(points(), batch_size=8, shuffle=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 8)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []

    def epoch() -> None:
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss).mean().item())

    epoch()
    folder = accelerator.save_state(os.path.join(own, "accelerate"))
    epoch()
    first = list(losses)
    accelerator.load_state(folder)
    epoch()
    return {"losses": first, "again": losses[len(first) // 2 * 2 :], "weights": weights_of(model)}


def lightning_trainer(own: str, other: str | None) -> Found:
    """lightning's Trainer: training, validation, a checkpoint that is loaded, prediction."""
    import lightning

    _quiet("lightning.pytorch")

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> Any:
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train", loss)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("valid", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def predict_step(self, batch: Any, index: int) -> Any:
            return self.net(batch[0])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    lightning.seed_everything(1, verbose=False)
    model = Model()
    run = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=True, gradient_clip_val=1.0,
        default_root_dir=own, accumulate_grad_batches=2,
    )  # fmt: skip
    run.fit(model, DataLoader(points(), batch_size=8, shuffle=True), DataLoader(points(16), batch_size=8))
    found = {"losses": model.losses, "valid": run.callback_metrics["valid"]}
    path = os.path.join(own, "lightning.ckpt")
    run.save_checkpoint(path)
    loaded = Model.load_from_checkpoint(path)
    predicted = torch.cat(run.predict(loaded, DataLoader(points(16), batch_size=8)))
    found["predicted"] = predicted
    theirs = os.path.join(other or "", "lightning.ckpt")
    if other and os.path.exists(theirs):
        found["loaded"] = weights_of(Model.load_from_checkpoint(theirs))
    return found


def lightning_fabric(own: str, other: str | None) -> Found:
    """lightning's Fabric: a loop of one's own, plain and in bfloat16."""
    from lightning import Fabric

    found: Found = {}
    for precision in ("32-true", "bf16-mixed"):
        fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
        fabric.seed_everything(2, verbose=False)
        model = network()
        model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=1e-2))
        loader = fabric.setup_dataloaders(DataLoader(points(), batch_size=8, shuffle=True))
        losses = []
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
        path = os.path.join(own, f"fabric-{precision}.ckpt")
        fabric.save(path, {"model": model, "optimizer": optimizer, "step": len(losses)})
        found[f"step {precision}"] = fabric.load(path, {"model": model, "optimizer": optimizer})["step"]
        found[f"losses {precision}"] = losses
    return found


def torchtune_style(own: str, other: str | None) -> Found:
    """A loop in the manner of torchtune's recipes: checkpointed layers, accumulated gradients scaled by tokens, warmup."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    model = small_llama()
    layer = type(model.model.layers[0])
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, layer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 3))
    ids = torch.tensor(np.random.default_rng(0).integers(3, 99, (8, 12)))
    losses, norms = [], []
    for _ in range(4):
        tokens, total = 0, 0.0
        for part in ids.split(4):
            labels = part.clone()
            labels[:, :3] = -100
            count = int((labels != -100).sum())
            loss = model(part, labels=labels, use_cache=False).loss * count
            loss.backward()
            tokens, total = tokens + count, total + loss.item()
        for p in model.parameters():
            p.grad /= tokens
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        losses.append(total / tokens)
    return {"losses": losses, "norms": norms, "weights": weights_of(model)}


# -- models and layers ---------------------------------------------------------------------------------------------------


def peft(own: str, other: str | None) -> Found:
    """peft: adapters (LoRA, DoRA, IA3, prefixes) on a small Llama, saved, loaded, merged."""
    from peft import IA3Config, LoraConfig, PeftModel, PrefixTuningConfig, get_peft_model

    ids = torch.tensor(np.random.default_rng(0).integers(3, 99, (4, 10)))
    targets = ["q_proj", "v_proj"]
    kinds = {
        "lora": LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=targets, task_type="CAUSAL_LM"),
        "dora": LoraConfig(r=4, use_dora=True, target_modules=targets, task_type="CAUSAL_LM"),
        "ia3": IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"
        ),
        "prefix": PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    }
    found: Found = {}
    for name, config in kinds.items():
        torch.manual_seed(0)
        model = get_peft_model(small_llama(), config)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        torch.manual_seed(1)
        losses = []
        for _ in range(3):
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found[f"{name} losses"] = losses
        model.eval().save_pretrained(os.path.join(own, f"peft-{name}"))
        with torch.no_grad():
            found[f"{name} logits"] = model(input_ids=ids).logits
        theirs = os.path.join(other or "", f"peft-{name}")
        if other and os.path.isdir(theirs):
            with torch.no_grad():
                found[f"{name} loaded"] = PeftModel.from_pretrained(small_llama(), theirs).eval()(input_ids=ids).logits
        if name in ("lora", "dora", "ia3"):
            with torch.no_grad():
                found[f"{name} merged"] = model.merge_and_unload()(input_ids=ids).logits
    return found


def _unet() -> Any:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip


def diffusers(own: str, other: str | None) -> Found:
    """diffusers: training a tiny UNet, pipelines with several schedulers, an autoencoder, a saved pipeline."""
    from diffusers import (
        AutoencoderKL,
        DDIMPipeline,
        DDIMScheduler,
        DDPMPipeline,
        DDPMScheduler,
        DPMSolverMultistepScheduler,
        EulerDiscreteScheduler,
        LMSDiscreteScheduler,
        PNDMScheduler,
    )

    unet, noise = _unet(), DDPMScheduler(num_train_timesteps=50)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
    clean, losses = numbers(2, 3, 16, 16), []
    torch.manual_seed(3)
    for _ in range(2):
        added, steps = torch.randn(clean.shape), torch.randint(0, 50, (2,))
        loss = nn.functional.mse_loss(unet(noise.add_noise(clean, added, steps), steps).sample, added)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found: Found = {"losses": losses}
    unet.eval()
    for kind in (DDPMPipeline, DDIMPipeline):
        scheduler = (DDPMScheduler if kind is DDPMPipeline else DDIMScheduler)(num_train_timesteps=50)
        pipeline = kind(unet=unet, scheduler=scheduler)
        pipeline.set_progress_bar_config(disable=True)
        generator = torch.Generator().manual_seed(4)
        found[kind.__name__] = pipeline(
            batch_size=1, generator=generator, num_inference_steps=4, output_type="np"
        ).images
    pipeline.save_pretrained(os.path.join(own, "diffusers"))
    theirs = os.path.join(other or "", "diffusers")
    if other and os.path.isdir(theirs):
        loaded = DDIMPipeline.from_pretrained(theirs)
        loaded.set_progress_bar_config(disable=True)
        generator = torch.Generator().manual_seed(4)
        found["loaded"] = loaded(batch_size=1, generator=generator, num_inference_steps=4, output_type="np").images
    for kind in (EulerDiscreteScheduler, PNDMScheduler, DPMSolverMultistepScheduler, LMSDiscreteScheduler):
        scheduler = kind(num_train_timesteps=50)
        scheduler.set_timesteps(4)
        sample = numbers(1, 3, 16, 16, seed=1) * scheduler.init_noise_sigma
        with torch.no_grad():
            for t in scheduler.timesteps:
                predicted = unet(scheduler.scale_model_input(sample, t), t).sample
                sample = scheduler.step(predicted, t, sample).prev_sample
        found[kind.__name__] = sample
    torch.manual_seed(0)
    vae = AutoencoderKL(block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
                        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, sample_size=16)  # fmt: skip
    output = vae(clean, sample_posterior=True, generator=torch.Generator().manual_seed(5)).sample
    output.square().mean().backward()
    found["vae"] = output
    found["vae gradients"] = torch.cat([p.grad.flatten() for p in vae.parameters() if p.grad is not None])
    return found


_TIMM = {
    "resnet18": {}, "resnetv2_50": {"layers": (1, 1, 1, 1)}, "vit_tiny_patch16_224": {"img_size": 32, "depth": 2},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "embed_dim": 24, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 4)},
    "convnext_tiny": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}, "efficientnet_b0": {}, "mobilenetv3_small_050": {},
    "mixer_s16_224": {"img_size": 32}, "densenet121": {"block_config": (1, 1, 1, 1)},
    "regnetx_002": {}, "deit_tiny_patch16_224": {"img_size": 32, "depth": 2}, "levit_128s": {"img_size": 128},
}  # fmt: skip


def timm(own: str, other: str | None) -> Found:
    """timm: families of image models, two training steps each, and optimizers of its own."""
    import timm as library
    from timm.optim import create_optimizer_v2

    found: Found = {}
    for name, settings in _TIMM.items():
        torch.manual_seed(0)
        model = library.create_model(name, pretrained=False, num_classes=5, **settings)
        side = settings.get("img_size", 64)
        x, y = numbers(6, 3, side, side), torch.tensor([0, 3, 1, 2, 4, 0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        torch.manual_seed(1)
        losses = []
        for _ in range(2):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found[name] = losses
        with torch.no_grad():
            found[f"{name} result"] = model.eval()(x)
    for kind in ("adamw", "lamb", "lion", "adopt", "sgdw", "nadamw", "adafactor", "madgrad", "adan", "lars"):
        model = network().eval()
        optimizer = create_optimizer_v2(model, opt=kind, lr=1e-2, weight_decay=0.01)
        x, y = points(16).tensors
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        found[f"optimizer {kind}"] = weights_of(model)
    return found


def einops(own: str, other: str | None) -> Found:
    """einops: rearrangements, reductions, its layers, einsum and packing."""
    from einops import einsum, pack, rearrange, reduce, repeat, unpack
    from einops.layers.torch import EinMix, Rearrange, Reduce

    x = numbers(2, 3, 8, 8).requires_grad_()
    torch.manual_seed(0)
    layers = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4), nn.Linear(48, 8), Reduce("b n d -> b d", "mean")
    )
    mixed = EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=48, d=4)
    parts = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
    packed, shapes = pack([x, numbers(2, 5)], "b *")
    results = [layers(x), mixed(parts), reduce(x, "b c (h 2) w -> b c h w", "max"), repeat(x, "b c h w -> b (c r) h w", r=2),
               einsum(x, x, "b c h w, b c w v -> b h v"), unpack(packed, shapes, "b *")[1], packed]  # fmt: skip
    sum((r**2).sum() for r in results).backward()
    return {**{str(i): r for i, r in enumerate(results)}, "gradient": x.grad}


def torchmetrics(own: str, other: str | None) -> Found:
    """torchmetrics: metrics of classification, regression, images, text, retrieval and clustering, and collections."""
    import torchmetrics as library
    from torchmetrics import classification, clustering, image, regression, retrieval, text

    scores, target = numbers(40, 4).softmax(1), torch.tensor(np.random.default_rng(1).integers(0, 4, 40))
    found: Found = {}
    kinds = ("Accuracy", "AUROC", "AveragePrecision", "CalibrationError", "CohenKappa", "ConfusionMatrix", "F1Score", "JaccardIndex",
             "MatthewsCorrCoef", "Precision", "Recall", "Specificity")  # fmt: skip
    for kind in kinds:
        metric = getattr(classification, f"Multiclass{kind}")(num_classes=4)
        for part, wanted in zip(scores.split(10), target.split(10)):
            metric.update(part, wanted)
        found[kind] = metric.compute()
    a, b = numbers(30, seed=2), numbers(30, seed=3)
    for kind in ("MeanSquaredError", "MeanAbsoluteError", "PearsonCorrCoef", "SpearmanCorrCoef", "R2Score", "KendallRankCorrCoef",
                 "ExplainedVariance", "LogCoshError"):  # fmt: skip
        found[kind] = getattr(regression, kind)()(a, b)
    pictures = (
        numbers(2, 3, 48, 48, seed=4).sigmoid(),
        (numbers(2, 3, 48, 48, seed=4) + 0.3 * numbers(2, 3, 48, 48, seed=5)).sigmoid(),
    )
    for kind in (
        "PeakSignalNoiseRatio",
        "StructuralSimilarityIndexMeasure",
        "UniversalImageQualityIndex",
        "TotalVariation",
    ):
        metric = getattr(image, kind)(
            **({} if kind in ("TotalVariation", "UniversalImageQualityIndex") else {"data_range": 1.0})
        )
        found[kind] = metric(pictures[0]) if kind == "TotalVariation" else metric(*pictures)
    found["BLEU"] = text.BLEUScore()(["the cat is on the mat"], [["there is a cat on the mat", "a cat is on the mat"]])
    found["WER"] = text.WordErrorRate()(["this is the prediction"], ["this is the reference"])
    found["Perplexity"] = text.Perplexity()(numbers(2, 8, 5, seed=6).softmax(-1), torch.arange(16).reshape(2, 8) % 5)
    groups = torch.arange(40) // 8
    for kind in ("RetrievalMAP", "RetrievalMRR", "RetrievalNormalizedDCG"):
        found[kind] = getattr(retrieval, kind)()(scores[:, 0], target == 0, indexes=groups)
    found["Rand"] = clustering.AdjustedRandScore()(target, scores.argmax(1))
    together = library.MetricCollection([classification.MulticlassAccuracy(4), classification.MulticlassF1Score(4)])
    found.update({f"collection {k}": v for k, v in together(scores, target).items()})
    return found


def sentence_transformers(own: str, other: str | None) -> Found:
    """sentence-transformers: a tiny local model, embeddings, similarity, training with a contrastive loss."""
    from datasets import Dataset as Table
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertModel, BertTokenizerFast

    folder = os.path.join(own, "sentences-bert")
    os.makedirs(folder, exist_ok=True)
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *[
            "a",
            "cat",
            "dog",
            "sat",
            "ran",
            "on",
            "the",
            "mat",
            "road",
            "fast",
            "slowly",
            "and",
            "is",
            "not",
            "red",
            "blue",
        ],
    ]
    with open(os.path.join(folder, "vocab.txt"), "w") as file:
        file.write("\n".join(words) + "\n")
    torch.manual_seed(0)
    BertModel(small_bert()).save_pretrained(folder)
    BertTokenizerFast(vocab_file=os.path.join(folder, "vocab.txt")).save_pretrained(folder)
    base = Transformer(folder, max_seq_length=16)
    model = SentenceTransformer(modules=[base, Pooling(32), Normalize()], device="cpu")
    sentences = ["a cat sat on the mat", "the dog ran fast", "a red dog", "the road is not blue"]
    found: Found = {
        "embeddings": model.encode(sentences),
        "similarity": model.similarity(*[model.encode(sentences)] * 2),
    }
    table = Table.from_dict({"anchor": sentences * 2, "positive": sentences[1:] + sentences[:1] + sentences})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=os.path.join(own, "sentences"), num_train_epochs=2, per_device_train_batch_size=4, learning_rate=1e-3,
        logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no", seed=1,
    )  # fmt: skip
    run = SentenceTransformerTrainer(
        model, arguments, train_dataset=table, loss=losses.MultipleNegativesRankingLoss(model)
    )
    run.train()
    found["losses"] = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    model.save(os.path.join(own, "sentences-saved"))
    found["after"] = SentenceTransformer(os.path.join(own, "sentences-saved"), device="cpu").encode(sentences)
    theirs = os.path.join(other or "", "sentences-saved")
    if other and os.path.isdir(theirs):
        found["loaded"] = SentenceTransformer(theirs, device="cpu").encode(sentences)
    return found


# -- science -------------------------------------------------------------------------------------------------------------


def torch_geometric(own: str, other: str | None) -> Found:
    """torch-geometric's pure parts: graph layers, batches of graphs, pooling, transforms, training."""
    import torch_geometric.nn as gnn
    from torch_geometric.data import Batch, Data
    from torch_geometric.transforms import AddSelfLoops, NormalizeFeatures, ToUndirected
    from torch_geometric.utils import degree, softmax, to_dense_adj

    r = np.random.default_rng(0)
    edges = torch.tensor(r.integers(0, 12, (2, 40)))
    data = Data(
        x=numbers(12, 6), edge_index=edges, edge_attr=numbers(40, 4, seed=1), y=torch.tensor(r.integers(0, 3, 12))
    )
    layers = {
        "GCN": lambda: gnn.GCNConv(6, 5), "SAGE": lambda: gnn.SAGEConv(6, 5), "GAT": lambda: gnn.GATConv(6, 5, heads=2, edge_dim=4),
        "GATv2": lambda: gnn.GATv2Conv(6, 5), "GIN": lambda: gnn.GINConv(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5))),
        "Transformer": lambda: gnn.TransformerConv(6, 5, heads=2), "Cheb": lambda: gnn.ChebConv(6, 5, K=2),
        "TAG": lambda: gnn.TAGConv(6, 5), "SG": lambda: gnn.SGConv(6, 5, K=2), "Graph": lambda: gnn.GraphConv(6, 5),
        "GatedGraph": lambda: gnn.GatedGraphConv(6, num_layers=2), "NN": lambda: gnn.NNConv(6, 5, nn.Linear(4, 30)),
        "Edge": lambda: gnn.EdgeConv(nn.Linear(12, 5)), "ARMA": lambda: gnn.ARMAConv(6, 5), "PNA": lambda: gnn.PNAConv(
            6, 5, ["mean", "max", "std"], ["identity", "amplification"], deg=torch.tensor([0, 2, 4, 3])),
    }  # fmt: skip
    found: Found = {}
    for name, make in layers.items():
        torch.manual_seed(0)
        layer = make()
        x = data.x.clone().requires_grad_()
        extra = (data.edge_attr,) if name in ("GAT", "NN") else ()
        output = layer(x, data.edge_index, *extra)
        output.square().sum().backward()
        found[name], found[f"{name} gradient"] = output, x.grad
    batch = Batch.from_data_list(
        [data, ToUndirected()(data.clone()), AddSelfLoops()(NormalizeFeatures()(data.clone()))]
    )
    for pool in (gnn.global_mean_pool, gnn.global_max_pool, gnn.global_add_pool):
        found[pool.__name__] = pool(batch.x, batch.batch)
    found["edges"], found["degree"] = batch.edge_index, degree(batch.edge_index[0])
    found["softmax"] = softmax(data.edge_attr, edges[0], num_nodes=12)
    found["dense"] = to_dense_adj(data.edge_index)
    torch.manual_seed(0)
    model = gnn.GCN(6, 8, num_layers=2, out_channels=3, dropout=0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(data.x, data.edge_index), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found["losses"] = losses
    return found


def gpytorch(own: str, other: str | None) -> Found:
    """gpytorch: exact regression, prediction, and a variational classifier."""
    import gpytorch as library

    x = torch.linspace(0, 1, 24)
    y = torch.sin(6.28 * x) + 0.1 * numbers(24)

    class Exact(library.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = library.means.ConstantMean()
            self.covar_module = library.kernels.ScaleKernel(
                library.kernels.RBFKernel() + library.kernels.MaternKernel(2.5)
            )

        def forward(self, inputs: Any) -> Any:
            return library.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    likelihood = library.likelihoods.GaussianLikelihood()
    model = Exact(likelihood)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = library.mlls.ExactMarginalLogLikelihood(likelihood, model)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    model.eval(), likelihood.eval()
    with torch.no_grad(), library.settings.fast_pred_var():
        predicted = likelihood(model(torch.linspace(0, 1.2, 15)))
    lower, upper = predicted.confidence_region()

    class Variational(library.models.ApproximateGP):
        def __init__(self) -> None:
            inducing = x[::4].clone()
            distribution = library.variational.CholeskyVariationalDistribution(len(inducing))
            super().__init__(library.variational.VariationalStrategy(self, inducing, distribution))
            self.mean_module = library.means.ZeroMean()
            self.covar_module = library.kernels.ScaleKernel(library.kernels.RBFKernel())

        def forward(self, inputs: Any) -> Any:
            return library.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    torch.manual_seed(0)
    second, bernoulli = Variational(), library.likelihoods.BernoulliLikelihood()
    bound = library.mlls.VariationalELBO(bernoulli, second, 24)
    optimizer = torch.optim.Adam(second.parameters(), lr=0.05)
    elbo = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = -bound(second(x), (y > 0).float())
        loss.backward()
        optimizer.step()
        elbo.append(loss.item())
    return {"losses": losses, "mean": predicted.mean, "lower": lower, "upper": upper, "elbo": elbo}


def pyro(own: str, other: str | None) -> Found:
    """pyro: variational inference with guides, and a chain of Hamiltonian steps."""
    import pyro as library
    import pyro.distributions as dist
    from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
    from pyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

    x = numbers(30, 2)
    y = x @ torch.tensor([1.5, -0.7]) + 0.3 + 0.1 * numbers(30, seed=1)

    def regression(x: Any, y: Any = None) -> Any:
        weight = library.sample("weight", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        bias = library.sample("bias", dist.Normal(0.0, 1.0))
        scale = library.sample("scale", dist.HalfCauchy(1.0))
        with library.plate("data", len(x)):
            return library.sample("obs", dist.Normal(x @ weight + bias, scale), obs=y)

    found: Found = {}
    for kind in (AutoNormal, AutoMultivariateNormal):
        library.clear_param_store()
        library.set_rng_seed(0)
        guide = kind(regression)
        svi = SVI(regression, guide, library.optim.ClippedAdam({"lr": 0.02}), Trace_ELBO(num_particles=2))
        found[kind.__name__] = [svi.step(x, y) for _ in range(15)]
        found[f"{kind.__name__} predicted"] = Predictive(regression, guide=guide, num_samples=4)(x)["obs"]

    @config_enumerate
    def mixture(values: Any) -> None:
        share = library.sample("share", dist.Dirichlet(torch.ones(2)))
        with library.plate("parts", 2):
            place = library.sample("place", dist.Normal(0.0, 2.0))
        with library.plate("points", len(values)):
            which = library.sample("which", dist.Categorical(share))
            library.sample("value", dist.Normal(place[which], 0.5), obs=values)

    library.clear_param_store()
    library.set_rng_seed(1)
    hidden = AutoNormal(library.poutine.block(mixture, hide=["which"]))
    svi = SVI(mixture, hidden, library.optim.Adam({"lr": 0.05}), TraceEnum_ELBO(max_plate_nesting=1))
    found["mixture"] = [svi.step(numbers(20, seed=2)) for _ in range(8)]
    library.clear_param_store()
    library.set_rng_seed(2)
    chain = MCMC(NUTS(regression, max_tree_depth=3), num_samples=4, warmup_steps=4, disable_progbar=True)
    chain.run(x, y)
    found["chain"] = chain.get_samples()["weight"]
    return found


# -- vision --------------------------------------------------------------------------------------------------------------


def _pictures(folder: str) -> str:
    """Squares on noise with their boxes, in the folders that YOLO's trainer reads."""
    from PIL import Image

    r = np.random.default_rng(0)
    for part in ("train", "val"):
        os.makedirs(os.path.join(folder, "images", part), exist_ok=True)
        os.makedirs(os.path.join(folder, "labels", part), exist_ok=True)
        for i in range(4):
            picture = r.integers(0, 60, (64, 64, 3)).astype("uint8")
            side, top, left = int(r.integers(12, 30)), int(r.integers(0, 30)), int(r.integers(0, 30))
            picture[top : top + side, left : left + side] = 200
            Image.fromarray(picture).save(os.path.join(folder, "images", part, f"{i}.png"))
            box = [(left + side / 2) / 64, (top + side / 2) / 64, side / 64, side / 64]
            with open(os.path.join(folder, "labels", part, f"{i}.txt"), "w") as file:
                file.write(" ".join(map(str, [i % 2, *box])) + "\n")
    path = os.path.join(folder, "data.yaml")
    with open(path, "w") as file:
        file.write(f"path: {os.path.abspath(folder)}\ntrain: images/train\nval: images/val\nnames:\n  0: a\n  1: b\n")
    return path


def ultralytics(own: str, other: str | None) -> Found:
    """ultralytics: a YOLOv8n from its configuration: forward, two epochs on synthetic pictures, prediction."""
    import torchvision
    from ultralytics import YOLO

    _quiet("ultralytics")
    try:
        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except RuntimeError:  # a torchvision whose compiled operators do not fit the PyTorch beside it
        torchvision.ops.nms = _plain_nms
    data = _pictures(os.path.join(own, "yolo-data"))
    torch.manual_seed(0)
    model = YOLO("yolov8n.yaml", task="detect")
    with torch.no_grad():
        found: Found = {"forward": model.model.eval()(numbers(1, 3, 64, 64).sigmoid())[0]}
    log: list[list[float]] = []
    model.add_callback("on_train_batch_end", lambda t: log.append([float(v) for v in t.loss_items.values()]))
    model.train(data=data, epochs=2, imgsz=64, batch=2, workers=0, device="cpu", project=os.path.abspath(own), name="yolo", seed=0,
                exist_ok=True, verbose=False, plots=False, amp=False, optimizer="SGD", lr0=0.001, pretrained=False)  # fmt: skip
    found["losses"] = log
    found["weights"] = weights_of(model.model.float())
    result = model.predict(
        os.path.join(own, "yolo-data", "images", "val", "0.png"), imgsz=64, verbose=False, conf=0.0001, max_det=5
    )
    found["boxes"] = result[0].boxes.data
    return found


def _plain_nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """The boxes that overlap no better one by more than the threshold, best first."""
    from torchvision.ops import box_iou

    overlap, kept = box_iou(boxes, boxes), []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if not any(overlap[i, j] > iou_threshold for j in kept):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def _quiet(name: str) -> None:
    logging.getLogger(name).setLevel(logging.ERROR)
