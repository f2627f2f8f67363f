"""Programs of the third notes file: creation, products, repeat, reshape, unfold, topk, gather, masks."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn, optim
from flambeau.nn import functional as F


def test_full_prints_its_value():
    assert str(torch.full((2, 3), 3.141592)) == "tensor([[3.1416, 3.1416, 3.1416],\n        [3.1416, 3.1416, 3.1416]])"


def test_rand_and_randn_take_positional_sizes():
    size = (2, 3)
    torch.manual_seed(0)
    uniform, normal = torch.rand(*size), torch.randn(*size)
    assert uniform.shape == normal.shape == size
    assert bool(((uniform >= 0) & (uniform < 1)).all())
    assert uniform[0].tolist() == pytest.approx([0.49625658988952637, 0.7682217955589294, 0.08847743272781372])


def test_batched_matrix_product():
    a, b = torch.randn(10, 3, 4), torch.randn(10, 4, 5)
    c = a @ b
    assert c.shape == (10, 3, 5)
    assert torch.allclose(c[7], a[7] @ b[7], atol=1e-5)


def test_element_wise_product():
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    assert (a * b).tolist() == [[5.0, 12.0], [21.0, 32.0]]


def test_clamp_with_only_a_minimum():
    out = torch.clamp(torch.Tensor([34, 54, -22, -9]), min=3)
    assert str(out) == "tensor([34., 54.,  3.,  3.])"


def test_reciprocal_and_log1p():
    assert torch.tensor([2.0, 4.0]).reciprocal().tolist() == [0.5, 0.25]
    assert torch.log1p(torch.tensor([0.0, 1.0])).tolist() == pytest.approx([0.0, 0.6931471805599453])
    assert torch.log1p(torch.tensor([1e-10], dtype=torch.float64)).item() == pytest.approx(1e-10, rel=1e-12)


def test_meshgrid_of_coordinates():
    y = torch.tensor([0, 1, 2])
    x = torch.tensor([0, 1])
    grid_y, grid_x = torch.meshgrid(y, x, indexing="ij")
    assert grid_y.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert grid_x.tolist() == [[0, 1], [0, 1], [0, 1]]
    grid_y, grid_x = torch.meshgrid(y, x, indexing="xy")
    assert grid_y.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert grid_x.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_repeat_copies_from_right_to_left():
    x = torch.tensor([1, 2, 3])
    assert x.repeat(4, 2).tolist() == [[1, 2, 3, 1, 2, 3]] * 4
    assert x.repeat(4, 2, 1).size() == torch.Size([4, 2, 3])


def test_reshape_is_contiguous_then_view():
    x = torch.arange(2 * 3 * 64).reshape(2, 3, 8, 8)
    assert x.reshape(x.size(0), x.size(1), -1).shape == (2, 3, 64)
    turned = x.transpose(2, 3)
    with pytest.raises(RuntimeError, match="view"):
        turned.view(2, 3, 64)
    assert torch.equal(turned.reshape(2, 3, 64), turned.contiguous().view(2, 3, 64))


def test_unfold_lays_windows_in_columns():
    img = torch.arange(0, 12, dtype=torch.float32).reshape(3, 4)
    columns = F.unfold(img[None, None, ...], kernel_size=(3, 3))
    assert columns.shape == (1, 9, 2)
    assert columns[0, :, 0].tolist() == [0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 9.0, 10.0]
    assert columns[0, :, 1].tolist() == [1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 9.0, 10.0, 11.0]


def test_convolution_is_unfold_then_product_then_fold():
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 6, 5), torch.randn(4, 3, 3, 3)
    columns = F.unfold(x, (3, 3), padding=1)  # the border is padded before the windows slide
    out = weight.view(4, -1) @ columns
    out = F.fold(out, (6, 5), (1, 1))
    assert torch.allclose(out, F.conv2d(x, weight, padding=1), atol=1e-4)


def test_unfold_does_not_take_integers():
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        F.unfold(torch.arange(12).reshape(1, 1, 3, 4), kernel_size=(3, 3))


def test_none_inserts_a_dimension_where_it_stands():
    tensor = torch.randn(3, 4)
    assert tensor[:, None].shape == torch.Size([3, 1, 4])
    assert tensor[:, :, None].shape == torch.Size([3, 4, 1])


def test_topk_gives_values_and_indices():
    values, indices = torch.topk(torch.tensor([3, 9, 1, 7]), 2)
    assert values.tolist() == [9, 7]
    assert indices.tolist() == [1, 3]
    smallest = torch.topk(torch.tensor([[3.0, 9.0], [1.0, 7.0]]), 1, dim=0, largest=False)
    assert smallest.values.tolist() == [[1.0, 7.0]]


def test_gather_needs_as_many_dimensions_and_no_larger_index():
    table = torch.tensor([[1, 2], [3, 4]])
    assert torch.gather(table, 1, torch.tensor([[0, 0], [1, 0]])).tolist() == [[1, 1], [4, 3]]
    assert torch.gather(table, 0, torch.tensor([[1]])).tolist() == [[3]]
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        torch.gather(table, 0, torch.tensor([1]))
    with pytest.raises(RuntimeError, match="index"):
        torch.gather(table, 1, torch.zeros(3, 1, dtype=torch.int64))


def test_global_average_of_the_topk():
    topk_num = 4
    x = torch.arange(0, 24, dtype=torch.float32).reshape(1, 2, 4, 3)
    x = x.reshape(x.size(0), x.size(1), -1)
    _, idx = torch.topk(x, topk_num, dim=-1, largest=True, sorted=False)
    y = torch.gather(x, dim=-1, index=idx)
    agg = torch.sum(y, -1) / topk_num
    assert agg.tolist() == [[9.5, 21.5]]


def test_xor_of_masks_wants_bool_on_both_sides():
    box_preds, dir_labels = torch.tensor([[-1.0], [2.0]]), torch.tensor([1, 1])
    opp_labels = (box_preds[..., -1] > 0) ^ dir_labels.bool()
    assert opp_labels.tolist() == [True, False]
    mask = box_preds[..., -1] > 0
    with pytest.raises(RuntimeError, match="result type Byte can't be cast to the desired output type Bool"):
        mask ^= dir_labels.byte()


def test_sum_of_ranges_and_its_slice():
    a = torch.arange(1, 13, dtype=torch.float32)
    c = a + torch.arange(1, 13, dtype=torch.float32)
    assert c[1:3].tolist() == [4.0, 6.0]
    assert a.size() == (12,)
    assert a.size(0) == 12
    assert str(a.device) == "cpu"


def test_ones_like_with_another_type():
    index = torch.tensor([0, 2, 1])
    votes = torch.ones_like(index, dtype=torch.rand(2).dtype)
    assert votes.dtype == torch.float32
    assert votes.to(torch.float64).dtype == torch.float64


def test_transposing_changes_strides_and_not_the_storage():
    x = torch.arange(6).reshape(2, 3)
    y = x.t()
    assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert x.stride() == (3, 1)
    assert y.stride() == (1, 3)
    assert y.storage().tolist() == [0, 1, 2, 3, 4, 5]


def test_masked_scatter_copies_where_the_mask_is_set():
    def myfunc(mask, x):
        y = torch.zeros(6)
        y.masked_scatter_(mask, x)
        return y

    mask = torch.tensor([0, 1, 0, 1, 1, 0])
    source = torch.tensor([1.0, 2.0, 3.0])
    assert myfunc(mask.bool(), source).tolist() == [0.0, 1.0, 0.0, 2.0, 3.0, 0.0]
    with pytest.raises(RuntimeError, match="masked_scatter_? ?.*(bool|Bool|mask)"):
        myfunc(mask, source)


def test_adaptive_max_pooling_to_one_element():
    max_pooling = nn.AdaptiveMaxPool2d((1, 1))
    feature_maps = torch.randn(20, 512, 8, 8)
    feature_vectors = max_pooling(feature_maps)
    assert feature_vectors.shape == (20, 512, 1, 1)
    assert torch.equal(feature_vectors[..., 0, 0], feature_maps.amax((2, 3)))
    assert feature_vectors.squeeze(-1).squeeze(-1).shape == (20, 512)


def test_a_layer_of_a_model_is_replaced():
    backbone = nn.Sequential()
    backbone.conv1 = nn.Conv2d(3, 4, 7, stride=2, padding=3, bias=False)
    backbone.relu = nn.ReLU()
    backbone.conv1 = nn.Conv2d(in_channels=1, out_channels=4, kernel_size=7, stride=2, padding=3, bias=False)
    assert [name for name, _ in backbone.named_children()] == ["conv1", "relu"]
    assert backbone(torch.randn(2, 1, 16, 16)).shape == (2, 4, 8, 8)


def test_sgd_and_adam_step_as_their_formulas_say():
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.tensor([[1.0, 2.0]])
    weight = model.weight.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    assert torch.allclose(weight - model.weight.detach(), 0.01 * x * (1 + 1.9), atol=1e-6)

    var1, var2 = torch.tensor([1.0], requires_grad=True), torch.tensor([2.0], requires_grad=True)
    optimizer = optim.Adam([var1, var2], lr=0.0001, betas=(0.9, 0.999))
    (3 * var1 + 5 * var2).backward()
    optimizer.step()
    assert var1.item() == pytest.approx(1.0 - 0.0001, abs=1e-6)  # the first step has the size of the learning rate
    assert var2.item() == pytest.approx(2.0 - 0.0001, abs=1e-6)


def test_hook_gets_a_feature_map():
    maps = []

    def get_saliency_map(module, input, output):
        saliency_map = input[0].clone().detach().cpu()
        saliency_map = np.array(saliency_map)[0][0]
        maps.append(np.uint8(saliency_map * 255))  # Scale between 0-255 to visualize

    model = nn.Sequential(nn.Sigmoid(), nn.ReLU())
    handle = model[1].register_forward_hook(get_saliency_map)
    model(torch.zeros(1, 2, 4, 4))
    assert maps[0].shape == (4, 4)
    assert (maps[0] == 127).all()
    handle.remove()
    model(torch.zeros(1, 2, 4, 4))
    assert len(maps) == 1


def test_model_is_tried_on_random_input():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=4), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    output = model(torch.randn(20, 1, 64, 64))
    assert output.size() == (20, 2)
    assert str(output).endswith("grad_fn=<AddmmBackward0>)")


def test_eval_switches_dropout_and_batch_norm():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5))
    x = torch.randn(8, 3)
    model.train()
    model(x)
    model.eval()
    expected = (x - model[0].running_mean) / torch.sqrt(model[0].running_var + 1e-5)
    assert torch.allclose(model(x), expected, atol=1e-5)
