"""Small programs with vision's models, box operators and transforms in which one word decides: torchvision computes the same."""

from __future__ import annotations

import pytest
from answers.programs import check, short

from .oracle import torchvision

SETUP = """
import importlib
v = lambda path: importlib.import_module(f"{V.__name__}.{path}")
O, B, M = V.ops, v("ops.boxes"), V.models
boxes = lambda *rows: L.tensor(rows, dtype=L.float32)
a = boxes([0, 0, 4, 6], [2, 1, 9, 5], [-3, 2, 2.5, 4], [1, 1, 1, 3])
b = boxes([1, 2, 5, 6], [2, 1, 9, 5], [20, 20, 30, 25], [0, 3, 2, 8])
digest_of = lambda m, *xs: digest(m.eval()(*xs)) if not isinstance(m, type) else None

def scored(m, *shape, train=False):
    # What a model computes, with the weights of seed 0, spread over numbers around zero.
    L.manual_seed(0)
    m = m()
    for p in m.parameters():
        if p.dim() == 1:
            L.nn.init.normal_(p, 0.5, 0.3)
    x = exact(*shape)
    out = (m.train() if train else m.eval())(x)
    out = list(out.values()) if isinstance(out, dict) else out
    return digest([sum(p.numel() for p in m.parameters()) * L.ones(1), *(out if isinstance(out, (list, tuple)) else [out])])
"""
PROGRAMS = [
    # boxes
    "[f(a, b) for f in (B.box_iou, B.generalized_box_iou, B.distance_box_iou, B.complete_box_iou)], B.box_area(a), B.clip_boxes_to_image(a, (5, 3)), B.remove_small_boxes(a, 2.5), B.remove_small_boxes(a, 0.5)",
    "[[f(a[:2], b[:2], reduction=r) for r in ('none', 'mean', 'sum')] for f in (O.generalized_box_iou_loss, O.distance_box_iou_loss, O.complete_box_iou_loss)]",
    "x, y = exact(3, 4) * 3, (exact(3, 4) > 0.1).float()\n[O.sigmoid_focal_loss(x, y, *o) for o in ((), (0.4,), (-1,), (0.25, 3.0), (0.25, 2, 'mean'), (0.25, 2, 'sum'))], raised(lambda: O.sigmoid_focal_loss(x, y, reduction='x'))",
    *(f"x = boxes([1, 2, 5, 6], [2, 1, 9, 5], [0.5, 3, 2, 8])\n[B.box_convert(x, {f!r}, t) for t in ('xyxy', 'xywh', 'cxcywh')], raised(lambda: B.box_convert(x, {f!r}, 'x'))" for f in ("xyxy", "xywh", "cxcywh")),
    *(f"x = boxes([1, 2, 5, 6, 30], [2, 1, 9, 5, -100], [0.5, 3, 2, 8, 0])\n[B.box_convert(x, {f!r}, t) for t in ('xywhr', 'cxcywhr', 'xyxyxyxy')]" for f in ("xywhr", "cxcywhr")),
    "B.box_convert(boxes([1, 2, 4.4641, 0, 5.4641, 1.7320508, 2, 3.7320508]), 'xyxyxyxy', 'xywhr'), B.box_convert(boxes([1, 2, 4.4641, 0, 5.4641, 1.7320508, 2, 3.7320508]), 'xyxyxyxy', 'cxcywhr')",
    "m = L.zeros(3, 5, 6)\nm[0, 1:3, 2:5] = 1\nm[1, 4, 0] = 1\nm[2, :, 3] = 1\nB.masks_to_boxes(m), B.masks_to_boxes(m[:0])",
    "[B.box_area(a, f) if f != 'x' else 0 for f in ('xyxy', 'xywh', 'cxcywh')] if raised(lambda: B.box_area(a, 'xywh')) == 'none' else raised(lambda: B.box_area(a, 'xywh'))",
    # detection
    "R = v('models.detection.' + ('roi_masks' if 'flambeau' in V.__name__ else 'roi_heads'))\nkeys = L.tensor([[[1.0, 2.0, 1.0], [5.0, 6.0, 2.0], [3.0, 3.0, 0.0], [0.9, 4.0, 1.0]], [[2.0, 5.0, 1.0], [9.0, 1.0, 1.0], [4.4, 3.1, 1.0], [9.1, 2.0, 1.0]]])\nR.keypoints_to_heatmap(keys, b[:2], 7), R.keypointrcnn_loss(exact(2, 4, 5, 5), [b[:2]], [keys], [L.tensor([0, 1])]), raised(lambda: R.keypointrcnn_loss(exact(2, 4, 5, 6), [b[:2]], [keys], [L.tensor([0, 1])]))",
    "R = v('models.detection.' + ('roi_masks' if 'flambeau' in V.__name__ else 'roi_heads'))\nR.heatmaps_to_keypoints(exact(3, 2, 4, 4), boxes([1, 2, 9, 6], [2, 1, 2.5, 5.5], [0.5, 3, 12.2, 8]))",
    "R = v('models.detection.' + ('roi_masks' if 'flambeau' in V.__name__ else 'roi_heads'))\nR.expand_boxes(a, 1.5), R.paste_mask_in_image(exact(4, 4), L.tensor([1, 2, 5, 6]), 8, 7), R.paste_mask_in_image(exact(4, 4), L.tensor([-2, 3, 3, 9]), 8, 7), R.paste_masks_in_image(exact(2, 1, 4, 4), a[:2], (7, 9)), R.paste_masks_in_image(exact(2, 1, 4, 4), a[1:3], (6, 8), 2), R.paste_masks_in_image(exact(0, 1, 4, 4), a[:0], (6, 8)).shape",
    "R = v('models.detection.roi_heads')\nR.maskrcnn_inference(exact(3, 4, 2, 2), [L.tensor([1, 3]), L.tensor([2])]), R.fastrcnn_loss(exact(4, 3), exact(4, 12), [L.tensor([0, 2]), L.tensor([1, 0])], [exact(2, 4) * 2, exact(2, 4)])",
    "D = v('models.detection._utils')\nc = D.BoxCoder((10.0, 10.0, 5.0, 5.0))\ne = c.encode([a[:2]], [b[:2]])\ne, c.decode(e[0], [a[:2]]), c.decode(exact(2, 8) * 30, [a[:2]]), D.BoxLinearCoder(True).encode_all(a[:2], b[:2]) if hasattr(D.BoxLinearCoder, 'encode_all') else D.BoxLinearCoder(False).encode(a[:2], b[:2])",
    "D = v('models.detection._utils')\nq = L.tensor([[0.1, 0.5, 0.7, 0.2, 0.35], [0.3, 0.45, 0.2, 0.1, 0.35]])\n[D.Matcher(0.6, 0.4, k)(q) for k in (False, True)], D.SSDMatcher(0.6)(q), raised(lambda: D.Matcher(0.5, 0.3)(L.zeros(0, 3))), raised(lambda: D.Matcher(0.5, 0.3)(L.zeros(3, 0))), D.Matcher(0.5, 0.3)(L.tensor([[0.5, 0.3, 0.29999]]))",
    "D = v('models.detection._utils')\nL.manual_seed(3)\nD.BalancedPositiveNegativeSampler(4, 0.5)([L.tensor([1, 0, -1, 2, 0, 1, 0]), L.tensor([0, 0, 0, 0, 0, 1])]), D.overwrite_eps(nn.Sequential(O.FrozenBatchNorm2d(2)), 0.1), D.smooth_l1_loss(exact(3), exact(3) * 2, 0.1) if hasattr(D, 'smooth_l1_loss') else 0",
    "A = v('models.detection.anchor_utils')\nI = v('models.detection.image_list').ImageList(L.zeros(2, 3, 32, 48), [(30, 40), (32, 48)])\ng = A.AnchorGenerator(((8, 12), (16,)), ((0.5, 1.0), (2.0,)))\ng(I, [L.zeros(2, 1, 4, 6), L.zeros(2, 1, 2, 3)]), g.num_anchors_per_location(), str(g)",
    *(f"A = v('models.detection.anchor_utils')\nI = v('models.detection.image_list').ImageList(L.zeros(1, 3, 32, 48), [(32, 48)])\ng = A.DefaultBoxGenerator({o})\ng(I, [L.zeros(1, 1, 2, 3), L.zeros(1, 1, 1, 2)]), g.num_anchors_per_location(), str(g)" for o in ("[[2], [2, 3]]", "[[2], [2, 3]], 0.1, 0.8, clip=False", "[[2], []], scales=[0.1, 0.4, 0.9]", "[[2], [3]], steps=[8, 16]")),
    "T_ = v('models.detection.transform')\nt = T_.GeneralizedRCNNTransform(20, 40, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], 8).eval()\ni, g = t([exact(3, 15, 10), exact(3, 8, 30)], [{'boxes': a, 'keypoints': L.ones(1, 2, 3), 'masks': L.ones(1, 15, 10).byte(), 'labels': L.ones(1).long()}, {'boxes': b, 'labels': L.ones(1).long()}])\ni.tensors, i.image_sizes, [t_['boxes'] for t_ in g], g[0]['keypoints'], g[0]['masks'].shape, t.postprocess([{'boxes': a}], [(20, 13)], [(15, 10)]), str(t), T_.resize_boxes(a, (4, 5), (8, 20)), T_.resize_keypoints(L.ones(1, 2, 3), (4, 5), (8, 20))",
    "D = v('models.detection.generalized_rcnn')\nX = v('ops.feature_pyramid_network')\nf = X.FeaturePyramidNetwork([3, 5], 4, X.LastLevelMaxPool())\nP = X.LastLevelP6P7(4, 4)\nout = f({'x': exact(1, 3, 8, 8), 'y': exact(1, 5, 4, 4)})\n[[k, digest(t)] for k, t in out.items()], digest(P([exact(1, 4, 6, 6)], [exact(1, 4, 6, 6)], ['0'])[0]), P([exact(1, 4, 6, 6)], [exact(1, 4, 6, 6)], ['0'])[1]",
    "P = v('ops.poolers')\nm = P.LevelMapper(2, 5, 224, 4, 1e-6)\nm([boxes([0, 0, 50, 50], [0, 0, 112, 112], [0, 0, 223, 224], [0, 0, 224, 224], [0, 0, 900, 600], [0, 0, 448, 448])]), str(P.MultiScaleRoIAlign(['a'], (3, 4), 2, canonical_scale=200))",
    # losses of detectors with small backbones, for images with boxes and without
    *(f"""class Small(nn.Module):
    def __init__(self, counts):
        super().__init__()
        self.out_channels = 256 if counts > 8 else [8, 8]
        self.one, self.two = nn.Conv2d(3, counts, 3, 8, 1), nn.Conv2d(counts, counts, 3, 2, 1)
    def forward(self, t):
        a = self.one(t)
        return {{'0': a, '1': self.two(a)}}
A = v('models.detection.anchor_utils')
L.manual_seed(0)
m = {make}.train()
targets = [{{'boxes': boxes([2, 3, 30, 28], [10, 20, 60, 50]), 'labels': L.tensor([1, 2])}}, {{'boxes': boxes()[:, None].reshape(0, 4), 'labels': L.zeros(0, dtype=L.int64)}}, {{'boxes': boxes([0, 0, 40, 63]), 'labels': L.tensor([2])}}]
found = m([exact(3, 64, 64)] * 3, targets)
sum(found.values()).backward()
found, digest([p.grad for p in m.parameters()][:6]), raised(lambda: m([exact(3, 64, 64)])), raised(lambda: m([exact(3, 64, 64)], [{{'boxes': boxes([5, 5, 3, 9]), 'labels': L.tensor([1])}}])), raised(lambda: m([exact(3, 64, 64)], [{{'boxes': [1], 'labels': L.tensor([1])}}]))""" for make in (
        "v('models.detection.ssd').SSD(Small(8), A.DefaultBoxGenerator([[2], [2]]), (64, 64), 3, head=v('models.detection.ssd').SSDHead([8, 8], [4, 4], 3))",
        "v('models.detection.retinanet').RetinaNet(Small(256), 3, 64, 64, anchor_generator=A.AnchorGenerator(((16,), (32,)), ((0.5, 1.0),) * 2))",
        "v('models.detection.fcos').FCOS(Small(256), 3, 64, 64, anchor_generator=A.AnchorGenerator(((8,), (16,)), ((1.0,),) * 2))")),
    "D = v('models.detection._utils')\nD.Matcher(0.5, 0.5)(L.tensor([[0.5, 0.4, 0.6]])), D.Matcher(0.5, 0.5, True)(L.tensor([[0.5, 0.4, 0.3], [0.1, 0.2, 0.45]])), D.Matcher(0.7, 0.3, True)(L.tensor([[0.5, 0.5, 0.3], [0.1, 0.2, 0.45]])), [getattr(D.Matcher, n) for n in ('BELOW_LOW_THRESHOLD', 'BETWEEN_THRESHOLDS')], D.SSDMatcher(0.5)(L.tensor([[0.5, 0.4, 0.3], [0.1, 0.2, 0.45]]))",
    # other operators
    "L.manual_seed(1)\n[O.drop_block2d(exact(2, 3, 8, 9) + 2, p, s, eps=e) for p, s, e in ((0.3, 3, 1e-6), (0.2, 5, 0.1))], O.drop_block3d(exact(1, 2, 6, 5, 7) + 2, 0.2, 3), O.drop_block2d(exact(1, 1, 4, 4), 0.3, 3, training=False), raised(lambda: O.drop_block2d(exact(1, 1, 4, 4), 1.1, 3)), raised(lambda: O.drop_block2d(exact(4, 4), 0.1, 3)), raised(lambda: O.drop_block3d(exact(1, 1, 4, 4), 0.1, 3)), str(O.DropBlock2d(0.3, 3)), str(O.DropBlock3d(0.1, 3, True))",
    "L.manual_seed(1)\n[O.stochastic_depth(exact(5, 3) + 2, p, m) for p in (0.0, 0.4, 1.0) for m in ('batch', 'row')], raised(lambda: O.stochastic_depth(exact(2), 1.1, 'row')), raised(lambda: O.stochastic_depth(exact(2), 0.5, 'x')), str(O.StochasticDepth(0.3, 'row'))",
    "n = O.FrozenBatchNorm2d(3, eps=0.1)\nn.running_var.copy_(exact(3) ** 2 + 0.5), n.running_mean.copy_(exact(3)), n.weight.copy_(exact(3) * 2), n.bias.copy_(exact(3) + 1)\nn(exact(2, 3, 2, 2)), str(n), list(n.state_dict())",
    "[str(m) for m in (O.Conv2dNormActivation(3, 8), O.Conv2dNormActivation(3, 8, 5, 2, dilation=2, groups=1, norm_layer=None, activation_layer=nn.SiLU, inplace=False), O.Conv3dNormActivation(3, 8, (3, 5, 1)), O.SqueezeExcitation(8, 2), O.MLP(4, [8, 3], nn.LayerNorm, nn.GELU, None, False, 0.3), O.MLP(4, [2]), O.Permute([0, 2, 1]))], O.SqueezeExcitation(4, 2)(exact(2, 4, 3, 3))",
    # optical flow
    "U = v('models.optical_flow._utils')\nU.grid_sample(exact(1, 2, 5, 6), exact(1, 3, 4, 2) * 4 + 2, align_corners=True), U.grid_sample(exact(1, 2, 1, 6), exact(1, 3, 4, 2) * 4, mode='nearest', align_corners=False), U.make_coords_grid(2, 2, 3), U.upsample_flow(exact(1, 2, 2, 3)), U.upsample_flow(exact(1, 2, 2, 3), exact(1, 9 * 16, 2, 3) * 2, 4)",
    "R = v('models.optical_flow.raft')\nc = R.CorrBlock(num_levels=3, radius=2)\nc.build_pyramid(exact(1, 4, 16, 24), exact(1, 4, 16, 24) * 2)\ndigest(c.index_pyramid(exact(1, 2, 16, 24) * 9 + 8)), c.out_channels, [digest(t) for t in c.corr_pyramid], raised(lambda: R.CorrBlock(num_levels=4, radius=2).build_pyramid(exact(1, 4, 8, 8), exact(1, 4, 8, 8)))",
    "R = v('models.optical_flow.raft')\n[digest(m.eval()(*x)) for m, x in ((R.ResidualBlock(4, 6, norm_layer=nn.InstanceNorm2d, stride=2), [exact(1, 4, 6, 8)]), (R.BottleneckBlock(4, 8, norm_layer=nn.BatchNorm2d, stride=2), [exact(1, 4, 6, 8)]), (R.ConvGRU(input_size=3, hidden_size=4, kernel_size=(1, 5), padding=(0, 2)), [exact(1, 4, 6, 8), exact(1, 3, 6, 8)]), (R.RecurrentBlock(input_size=3, hidden_size=4), [exact(1, 4, 6, 8), exact(1, 3, 6, 8)]), (R.FlowHead(in_channels=4, hidden_size=5), [exact(1, 4, 6, 8)]), (R.MaskPredictor(in_channels=4, hidden_size=5, multiplier=0.5), [exact(1, 4, 6, 8)]), (R.MotionEncoder(in_channels_corr=5, corr_layers=(6, 4), flow_layers=(4, 3), out_channels=9), [exact(1, 2, 6, 8), exact(1, 5, 6, 8)]))]",
    "R = v('models.optical_flow.raft')\n[str(m) for m in (R.MotionEncoder(in_channels_corr=5), R.FeatureEncoder(norm_layer=nn.BatchNorm2d), R.RecurrentBlock(input_size=3, hidden_size=4), R.MaskPredictor(in_channels=4, hidden_size=5))]",
    "L.manual_seed(0)\nm = M.optical_flow.raft_small().eval()\nwith L.no_grad():\n    out = m(exact(1, 3, 128, 136), exact(1, 3, 128, 136).flip(-1), num_flow_updates=2)\ndigest(out), raised(lambda: m(exact(1, 3, 64, 60), exact(1, 3, 64, 60))), raised(lambda: m(exact(1, 3, 64, 64), exact(1, 3, 64, 72)))",
    # models, small ones of each family
    *(f"scored(lambda: {make}, {shape})" for make, shape in (
        ("M.swin_transformer.SwinTransformer([2, 2], 8, [2, 3], [2, 4], [3, 4], num_classes=3, stochastic_depth_prob=0.0)", "2, 3, 32, 28"), ("M.swin_transformer.SwinTransformer([4, 4], 8, [1, 2], [2, 2], [2, 2], num_classes=3, block=M.swin_transformer.SwinTransformerBlockV2, downsample_layer=M.swin_transformer.PatchMergingV2)", "1, 3, 32, 28"),
        ("M.VisionTransformer(16, 8, 2, 2, 8, 12, num_classes=3)", "2, 3, 16, 16"), ("M.VisionTransformer(16, 4, 1, 2, 8, 12, num_classes=3, representation_size=5, conv_stem_configs=[v('models.vision_transformer').ConvStemConfig(4, 3, 2), v('models.vision_transformer').ConvStemConfig(6, 3, 2)])", "1, 3, 16, 16"),
        ("M.ConvNeXt([v('models.convnext').CNBlockConfig(4, 6, 2), v('models.convnext').CNBlockConfig(6, None, 1)], layer_scale=0.5, num_classes=3)", "1, 3, 16, 24"), ("M.MaxVit((32, 32), 4, 2, [4, 8], [1, 2], 4, 0.0, num_classes=3)", "1, 3, 32, 32"), ("M.shufflenet_v2_x0_5(num_classes=3)", "1, 3, 32, 32"), ("M.squeezenet1_1(num_classes=3)", "1, 3, 32, 32"), ("M.mobilenet_v3_small(num_classes=3)", "1, 3, 32, 32"),
        ("M.efficientnet_b0(num_classes=3)", "1, 3, 32, 32"), ("M.EfficientNet([v('models.efficientnet').FusedMBConvConfig(1, 3, 1, 8, 8, 2), v('models.efficientnet').FusedMBConvConfig(4, 3, 2, 8, 16, 1), v('models.efficientnet').MBConvConfig(4, 3, 2, 16, 24, 1)], 0.2, num_classes=3, last_channel=20)", "1, 3, 32, 32"), ("M.regnet_x_400mf(num_classes=3)", "1, 3, 32, 32"), ("M.RegNet(v('models.regnet').BlockParams.from_init_params(depth=4, w_0=16, w_a=20.0, w_m=2.0, group_width=8, se_ratio=0.25), num_classes=3)", "1, 3, 32, 32"),
        ("M.mnasnet0_5(num_classes=3)", "1, 3, 32, 32"), ("M.DenseNet(4, (2, 2), 8, 2, num_classes=3)", "1, 3, 32, 32"), ("M.ResNet(M.resnet.Bottleneck, [1, 1, 1, 1], 3, groups=2, width_per_group=16, replace_stride_with_dilation=[False, True, True])", "1, 3, 32, 32"), ("M.ResNet(M.resnet.BasicBlock, [1, 1, 1, 1], 3, True)", "1, 3, 32, 32"),
        ("v('models.video.resnet').VideoResNet(v('models.video.resnet').Bottleneck, [v('models.video.resnet').Conv2Plus1D] * 4, [1, 1, 1, 1], v('models.video.resnet').R2Plus1dStem, 3)", "1, 3, 4, 16, 16"), ("v('models.video.resnet').VideoResNet(v('models.video.resnet').BasicBlock, [v('models.video.resnet').Conv3DNoTemporal] * 4, [1, 1, 1, 1], v('models.video.resnet').BasicStem, 3)", "1, 3, 4, 16, 16"),
        ("v('models.video.swin_transformer').SwinTransformer3d([2, 4, 4], 8, [2, 2], [2, 4], [2, 3, 4], num_classes=3)", "1, 3, 6, 32, 28"),
        ("v('models.segmentation').lraspp_mobilenet_v3_large(num_classes=3, weights_backbone=None)", "1, 3, 32, 48"))),
    "scored(lambda: M.ShuffleNetV2([1, 1, 1], [8, 12, 16, 20, 24], 3), 2, 3, 32, 32, train=True)",
    # drawing
    "U = V.utils\nU.make_grid(exact(5, 2, 3, 4)[:, [0, 1, 0]], 2, 1, True, None, True, 0.5), U.make_grid(exact(3, 1, 2, 2), 3, 2, True, (-0.5, 0.25)), U.make_grid(exact(1, 3, 2, 2)).shape, U.make_grid([exact(3, 2, 2)] * 3, padding=0), raised(lambda: U.make_grid([1])), U.make_grid(exact(2, 2), normalize=True)",
    "U = V.utils\nx = (exact(3, 12, 14) * 100 + 120).to(L.uint8)\nU.draw_segmentation_masks(x, exact(2, 12, 14) > 0.2, 0.6, ['red', (1, 200, 3)]), U.draw_segmentation_masks(x, exact(2, 12, 14) > 0.2), U.flow_to_image(exact(2, 5, 6) * 3), U.flow_to_image(exact(2, 2, 5, 6)), raised(lambda: U.draw_segmentation_masks(x, exact(2, 12, 14))), raised(lambda: U.flow_to_image(exact(3, 4, 4)))",
    "U = V.utils\nx = (exact(3, 22, 24) * 100 + 120).to(L.uint8)\nq = boxes([2, 3, 12, 14], [6, 1, 20, 18])\nU.draw_bounding_boxes(x, q, colors=['red', '#00ff10'], width=2), U.draw_bounding_boxes(x, q, fill=True, colors=(9, 8, 7)), U.draw_bounding_boxes(x, q), U.draw_keypoints(x, L.tensor([[[3.0, 4.0], [15.0, 12.0], [8.0, 18.0]]]), [(0, 1), (1, 2)], (200, 0, 9), 1, 2), U.draw_keypoints(x, L.tensor([[[3.0, 4.0], [15.0, 12.0]]]), visibility=L.tensor([[1, 0]])), raised(lambda: U.draw_bounding_boxes(x, boxes([5, 5, 3, 9])))",
    # boxes, points and images move alike, whatever their format, dtype and centre
    *(f"T, F = V.tv_tensors, v('transforms.v2.functional')\nx = T.BoundingBoxes(L.tensor([[4, 5, 7, 5], [2, 3, 4, 9], [6, 6, 9, 8]]).to(L.{d}), format={f!r}, canvas_size=(11, 14))\np = T.KeyPoints(L.tensor([[4, 5], [2, 3]]).to(L.{d}), canvas_size=(11, 14))\nfound = [(F.rotate(x, a, center=c), F.rotate(p, a, expand=e, center=c)) for a in (23.8, -132.97) for e in (False, True) for c in (None, [4, 6])]\nfound, [[y, y.canvas_size] for y in (F.crop(x, 3, 2, 5, 7), F.pad(x, [1, -3, 2, 0]), F.center_crop(x, [5, 9]), F.resized_crop(x, 1, 2, 6, 7, [9, 4]), F.affine(x, 30.0, [1, -2], 0.9, [5.0, 3.0]), F.perspective(x, [[0, 0], [13, 0], [13, 10], [0, 10]], [[1, 2], [12, 1], [11, 9], [2, 8]]))]" for f in ("XYXY", "XYWH", "CXCYWH") for d in ("int64", "float32")),
    "F = v('transforms.v2.functional')\nx = exact(3, 7, 9)\n[F.rotate(x, a, expand=True, center=c).shape for a in (23.8, -132.97, 90.0) for c in (None, [2, 5], [0, 0])], F.rotate(x, 30.0, expand=True, center=[2, 5]), raised(lambda: F.pad(x, [1, 2], fill=[1, 2, 3], padding_mode='edge')), F.pad(x, [1, 2], fill=[1, 2, 3]), F.pad(x, [1, 2], fill=[1], padding_mode='edge').sum()",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=short)
def test_program(program: str) -> None:
    torchvision()
    check(program, SETUP)
