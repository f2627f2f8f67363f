"""Programs of the fourth notes file, on tensors: storage, strides, names, types, NumPy and images, shapes, products."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F


def test_same_seed_same_numbers():
    np.random.seed(0)
    torch.manual_seed(0)
    first = torch.randn(3), torch.rand(2), torch.randint(10, (4,)), torch.randperm(5)
    torch.manual_seed(0)
    second = torch.randn(3), torch.rand(2), torch.randint(10, (4,)), torch.randperm(5)
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    assert first[0].tolist() == pytest.approx([1.5409960746765137, -0.293428897857666, -2.1787893772125244])


def test_a_slice_shares_the_storage(capsys):
    a = torch.arange(5)
    b = a[2:]
    print("a:", a)
    print("b:", b)
    assert a.storage().data_ptr() == b.storage().data_ptr()
    b[1] = 0
    print("a:", a)
    print("b:", b)
    assert a.storage().data_ptr() == b.storage().data_ptr()
    assert capsys.readouterr().out.splitlines() == [
        "a: tensor([0, 1, 2, 3, 4])",
        "b: tensor([2, 3, 4])",
        "a: tensor([0, 1, 2, 0, 4])",
        "b: tensor([2, 0, 4])",
    ]


def test_type_size_dim_stride_offset_and_storage():
    tensor = torch.randn(3, 4, 5)
    assert tensor.type() == "torch.FloatTensor"
    assert tensor.size() == (3, 4, 5)
    assert tensor.dim() == 3
    a = torch.arange(6).reshape(2, 3)
    assert a.storage_offset() == 0
    assert a[1].storage_offset() == 3
    assert list(a.storage()) == [0, 1, 2, 3, 4, 5]
    assert str(a.storage()).splitlines()[:6] == [" 0", " 1", " 2", " 3", " 4", " 5"]
    assert a.storage().data_ptr() == a.data_ptr()


def test_strides_of_reshaped_ranges(capsys):
    a = torch.arange(6).reshape(2, 3)
    b = torch.arange(6).view(3, 2)
    print("a:", a)
    print("stride of a:", a.stride())
    print("b:", b)
    print("stride of b:", b.stride())
    assert capsys.readouterr().out.splitlines() == [
        "a: tensor([[0, 1, 2],",
        "        [3, 4, 5]])",
        "stride of a: (3, 1)",
        "b: tensor([[0, 1],",
        "        [2, 3],",
        "        [4, 5]])",
        "stride of b: (2, 1)",
    ]


def test_rows_are_views_and_columns_step_over_elements():
    """The internals talk: position = sum of index * stride; row 1 starts at offset 2, column 0 has stride 2."""
    tensor = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    row, column = tensor[1, :], tensor[:, 0]
    assert (row.storage_offset(), row.stride()) == (2, (1,))
    assert (column.storage_offset(), column.stride()) == (0, (2,))
    row[0] = 30
    assert tensor.tolist() == [[1, 2], [30, 4]]
    flat = tensor.storage()
    i, j = 1, 1
    assert flat[i * tensor.stride(0) + j * tensor.stride(1)] == tensor[i, j].item()


def test_dimensions_by_number():
    images = torch.randn(32, 3, 56, 56)
    assert images.sum(dim=1).shape == (32, 56, 56)
    assert images.select(dim=1, index=0).shape == (32, 56, 56)


def test_typed_constructors():
    a = torch.FloatTensor([[1, 2, 3], [4, 5, 6]])
    assert a[1][2].item() == 6.0
    assert str(a[1][2]) == "tensor(6.)"
    a[0][1] = 8
    assert str(a) == "tensor([[1., 8., 3.],\n        [4., 5., 6.]])"
    zeros = torch.IntTensor(2, 4).zero_()
    assert zeros.dtype == torch.int32
    assert zeros.tolist() == [[0] * 4] * 2


@pytest.mark.parametrize(
    "constructor, dtype",
    [
        ("FloatTensor", "float32"),
        ("DoubleTensor", "float64"),
        ("HalfTensor", "float16"),
        ("ByteTensor", "uint8"),
        ("CharTensor", "int8"),
        ("ShortTensor", "int16"),
        ("IntTensor", "int32"),
        ("LongTensor", "int64"),
    ],
)
def test_table_of_tensor_types(constructor, dtype):
    tensor = getattr(torch, constructor)([1, 2])
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.type() == f"torch.{constructor}"


def test_a_trailing_underscore_changes_the_tensor_itself():
    a = torch.FloatTensor([-1, 2])
    assert a.abs().tolist() == [1.0, 2.0]
    assert a.tolist() == [-1.0, 2.0]
    assert a.abs_() is a
    assert a.tolist() == [1.0, 2.0]
    assert torch.tensor([0.5]).acos_().item() == pytest.approx(1.0471975, abs=1e-6)
    assert torch.tensor([0.5]).asin_().item() == pytest.approx(0.5235988, abs=1e-6)
    assert torch.tensor([0.5]).add_(1).item() == 1.5
    assert torch.tensor([0.5]).ceil_().item() == 1.0
    assert torch.tensor([1.0]).addcmul_(torch.tensor([2.0]), torch.tensor([3.0]), value=0.5).item() == 4.0
    product = torch.zeros(1, 1).addbmm_(torch.ones(2, 1, 3), torch.ones(2, 3, 1))
    assert product.item() == 6.0


def test_conversions_by_name():
    torch.set_default_tensor_type(torch.FloatTensor)
    tensor = torch.tensor([1.7, 300.0, -2.5])
    assert tensor.cpu() is tensor
    assert tensor.char().dtype == torch.int8
    assert tensor.float() is tensor
    assert tensor.byte().dtype == torch.uint8
    assert tensor.long().tolist() == [1, 300, -2]
    assert tensor.half().dtype == torch.float16
    assert tensor.int().tolist() == [1, 300, -2]
    assert tensor.double().dtype == torch.float64
    assert tensor.type(torch.IntTensor).dtype == torch.int32


def test_type_as_takes_the_type_of_another():
    tensor1 = torch.FloatTensor(4)
    tensor2 = torch.IntTensor(3)
    tensor1 = tensor1.type_as(tensor2)
    assert tensor1.dtype == torch.int32
    assert tensor1.type(torch.FloatTensor).dtype == torch.float32


def test_numpy_and_back():
    tensor = torch.tensor([[1, 2], [3, 4]])
    ndarray = tensor.cpu().numpy()
    assert ndarray.dtype == np.int64
    assert torch.from_numpy(ndarray).float().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ValueError, match="strides"):
        torch.from_numpy(ndarray[::-1])
    assert torch.from_numpy(ndarray[::-1].copy()).float().tolist() == [[3.0, 4.0], [1.0, 2.0]]


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"])
def test_every_cpu_type_goes_to_numpy_and_back(name):
    tensor = torch.tensor([0, 1, 1]).to(getattr(torch, name))
    assert torch.equal(torch.from_numpy(tensor.numpy()), tensor)
    assert tensor.numpy().dtype.name == name


def test_images_and_back(tmp_path):
    image_module = pytest.importorskip("PIL.Image", reason="image conversion needs Pillow")
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    path = tmp_path / "figure.png"
    image_module.fromarray(pixels).save(path)
    tensor = torch.from_numpy(np.array(image_module.open(path))).permute(2, 0, 1).float() / 255
    assert tensor.shape == (3, 4, 5)
    assert float(tensor.max()) <= 1
    clamped = torch.clamp(tensor * 255, min=0, max=255).round().byte()
    image = image_module.fromarray(clamped.permute(1, 2, 0).cpu().numpy())
    assert np.array_equal(np.asarray(image), pixels)
    gray = torch.from_numpy(np.array(image.convert("L"), dtype=np.float32))
    assert gray.shape == torch.Size([4, 5])


def test_value_of_a_single_element():
    value = torch.rand(1).item()
    assert isinstance(value, float)


def test_view_in_several_shapes():
    tt = torch.tensor([-0.3623, -0.6115, 0.7283, 0.4699, 2.3261, 0.1599])
    assert tt.view(3, 2).shape == (3, 2)
    assert tt.view(-1).shape == (6,)
    assert tt.view(2, -1).shape == (2, 3)
    assert (
        str(tt.view(3, 2)) == "tensor([[-0.3623, -0.6115],\n        [ 0.7283,  0.4699],\n        [ 2.3261,  0.1599]])"
    )


def test_reshape_shuffle_and_flip():
    tensor = torch.rand(2, 3, 4)
    tensor = torch.reshape(tensor, (6, 4))
    assert tensor.shape == (6, 4)
    shuffled = tensor[torch.randperm(tensor.size(0))]
    assert torch.equal(shuffled.sort(0).values, tensor.sort(0).values)
    images = torch.arange(24.0).reshape(1, 2, 3, 4)
    flipped = images[:, :, :, torch.arange(images.size(3) - 1, -1, -1).long()]
    assert flipped[0, 0, 0].tolist() == [3.0, 2.0, 1.0, 0.0]
    assert torch.equal(flipped, images.flip(3))
    with pytest.raises(ValueError, match="step must be greater than zero"):
        images[::-1]


def test_view_needs_contiguity_reshape_copies_and_resize_does_as_it_is_told():
    a = torch.arange(6).view(2, 3)
    assert a.reshape(3, 2).data_ptr() == a.data_ptr()
    turned = a.t()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        turned.view(6)
    assert turned.reshape(6).data_ptr() != a.data_ptr()
    assert turned.contiguous().view(6).tolist() == [0, 3, 1, 4, 2, 5]
    grown = torch.arange(3).resize_(2, 3)
    assert grown.shape == (2, 3)
    assert grown[0].tolist() == [0, 1, 2]


def test_permute_and_chains_of_transpose():
    x = torch.randn(2, 3, 5)
    assert x.size() == torch.Size([2, 3, 5])
    assert x.permute(2, 0, 1).size() == torch.Size([5, 2, 3])
    y = torch.randn(2, 3, 4, 5)
    assert y.permute(3, 2, 0, 1).shape == torch.Size([5, 4, 2, 3])
    assert y.transpose(3, 0).transpose(2, 1).transpose(3, 2).shape == torch.Size([5, 4, 2, 3])
    assert y.transpose(1, 0).transpose(2, 1).transpose(3, 1).shape == torch.Size([3, 5, 2, 4])
    unpermuted = torch.tensor(np.array([[[1, 2, 3], [4, 5, 6]]]))
    assert str(unpermuted.size()) == "torch.Size([1, 2, 3])"
    assert unpermuted.permute(2, 0, 1).size() == torch.Size([3, 1, 2])
    assert unpermuted.view(1, 3, 2).size() == torch.Size([1, 3, 2])
    assert unpermuted.permute(2, 0, 1).tolist() == [[[1, 4]], [[2, 5]], [[3, 6]]]
    assert unpermuted.view(1, 3, 2).tolist() == [[[1, 2], [3, 4], [5, 6]]]


def test_contiguity_of_a_transpose():
    x = torch.ones(10, 10)
    assert x.is_contiguous()
    assert not x.transpose(0, 1).is_contiguous()
    assert x.transpose(0, 1).contiguous().is_contiguous()


def test_clone_and_detach_table():
    tensor = torch.ones(2, requires_grad=True)
    assert tensor.clone().requires_grad and tensor.clone().data_ptr() != tensor.data_ptr()
    assert not tensor.detach().requires_grad and tensor.detach().data_ptr() == tensor.data_ptr()
    both = tensor.detach().clone()
    assert not both.requires_grad and both.data_ptr() != tensor.data_ptr()


def test_cat_joins_and_stack_adds_a_dimension():
    list_of_tensors = [torch.full((10, 5), float(i)) for i in range(3)]
    assert torch.cat(list_of_tensors, dim=0).shape == (30, 5)
    assert torch.stack(list_of_tensors, dim=0).shape == (3, 10, 5)
    assert torch.cat(list_of_tensors, dim=0)[10:20].unique().tolist() == [1.0]


def test_one_hot_by_scatter():
    tensor = torch.tensor([0, 2, 1, 3])
    n, num_classes = tensor.size(0), 4
    one_hot = torch.zeros(n, num_classes).long()
    one_hot.scatter_(dim=1, index=torch.unsqueeze(tensor, dim=1), src=torch.ones(n, num_classes).long())
    assert one_hot.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    assert torch.equal(one_hot, F.one_hot(tensor))


def test_nonzero_elements():
    tensor = torch.tensor([[0, 3], [4, 0]])
    assert torch.nonzero(tensor).tolist() == [[0, 1], [1, 0]]
    assert torch.nonzero(tensor == 0).tolist() == [[0, 0], [1, 1]]
    assert torch.nonzero(tensor).size(0) == 2
    assert torch.nonzero(tensor == 0).size(0) == 2


def test_equality_of_tensors():
    a = torch.tensor([0.1, 0.2])
    assert torch.allclose(a, a + 1e-9)
    assert not torch.allclose(a, a + 1e-2)
    assert torch.equal(torch.tensor([1, 2]), torch.tensor([1, 2]))
    assert not torch.equal(torch.tensor([1, 2]), torch.tensor([1, 3]))
    assert not torch.equal(torch.tensor([1, 2]), torch.tensor([[1, 2]]))


def test_expand_repeats_without_memory():
    tensor = torch.rand(64, 512)
    wide = torch.reshape(tensor, (64, 512, 1, 1)).expand(64, 512, 7, 7)
    assert wide.shape == (64, 512, 7, 7)
    assert wide.stride()[2:] == (0, 0)
    assert wide.data_ptr() == tensor.data_ptr()


def test_matrix_products():
    tensor1, tensor2 = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]])
    assert torch.mm(tensor1, tensor2).tolist() == [[11.0]]
    batch1, batch2 = torch.randn(5, 2, 3), torch.randn(5, 3, 4)
    assert torch.bmm(batch1, batch2).shape == (5, 2, 4)
    assert (tensor1 * tensor1).tolist() == [[1.0, 4.0]]


def test_distances_between_all_pairs_by_broadcasting():
    torch.manual_seed(0)
    X1, X2 = torch.randn(4, 3), torch.randn(5, 3)
    dist = torch.sqrt(torch.sum((X1[:, None, :] - X2) ** 2, dim=2))
    assert dist.shape == (4, 5)
    assert torch.allclose(dist, torch.cdist(X1, X2), atol=1e-4)
    assert dist[1, 2].item() == pytest.approx(float(np.linalg.norm(X1[1].numpy() - X2[2].numpy())), rel=1e-5)


def test_bilinear_pooling():
    torch.manual_seed(0)
    n, d, h, w = 2, 3, 4, 5
    X = torch.randn(n, d, h, w)
    X = torch.reshape(X, (n, d, h * w))
    X = torch.bmm(X, torch.transpose(X, 1, 2)) / (h * w)
    assert X.size() == (n, d, d)
    X = torch.reshape(X, (n, d * d))
    X = torch.sign(X) * torch.sqrt(torch.abs(X) + 1e-5)
    X = F.normalize(X)
    assert torch.allclose(X.norm(dim=1), torch.ones(n), atol=1e-5)


def sample_frames(num_frames, k, is_train):
    if is_train:
        if num_frames > k:
            frame_indices = torch.randint(high=num_frames // k, size=(k,), dtype=torch.long)
            frame_indices += num_frames // k * torch.arange(k)
        else:
            frame_indices = torch.randint(high=num_frames, size=(k - num_frames,), dtype=torch.long)
            frame_indices = torch.sort(torch.cat((torch.arange(num_frames), frame_indices)))[0]
    else:
        if num_frames > k:
            frame_indices = torch.full((k,), num_frames // k // 2)
            frame_indices += num_frames // k * torch.arange(k)
        else:
            frame_indices = torch.sort(torch.cat((torch.arange(num_frames), torch.arange(k - num_frames))))[0]
    assert frame_indices.size() == (k,)
    return [frame_indices[i] for i in range(k)]


@pytest.mark.parametrize("num_frames", [20, 3])
@pytest.mark.parametrize("is_train", [True, False])
def test_one_frame_per_segment(num_frames, is_train):
    torch.manual_seed(0)
    frames = [int(i) for i in sample_frames(num_frames, 5, is_train)]
    assert frames == sorted(frames)
    assert all(0 <= i < num_frames for i in frames)
    if not is_train and num_frames > 5:
        assert frames == [2, 6, 10, 14, 18]
    if num_frames > 5:
        assert [i // 4 for i in frames] == [0, 1, 2, 3, 4]


def test_curves_joined_for_a_plot():
    x = torch.linspace(-6, 6, 100).view([-1, 1])
    plot_x = torch.cat([x, x, x], dim=1)
    plot_y = torch.cat([torch.sigmoid(x), torch.tanh(x), torch.relu(x)], dim=1)
    assert plot_x.shape == plot_y.shape == (100, 3)
    values = x.double().numpy()
    assert np.allclose(
        plot_y.numpy(), np.hstack([1 / (1 + np.exp(-values)), np.tanh(values), values.clip(0)]), atol=1e-6
    )
    waves = torch.cat([torch.sin(x), torch.cos(x)], dim=1)
    assert torch.allclose((waves**2).sum(1), torch.ones(100), atol=1e-6)


def test_correlations_from_numpy():
    data = np.random.RandomState(0).rand(20, 4)
    corr = torch.from_numpy(np.corrcoef(data, rowvar=False))
    assert corr.dtype == torch.float64
    assert torch.allclose(torch.corrcoef(torch.from_numpy(data).t()), corr)


def test_reverse_mode_follows_the_forward_pass_backwards():
    """The recurrent example of the internals talk: two products, a sum, tanh, a loss; then every backward line by hand."""
    torch.manual_seed(0)
    W_h, W_x = torch.randn(4, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    x, prev_h = torch.randn(1, 3), torch.randn(1, 4)
    i2h = torch.mm(W_x, x.t())
    h2h = torch.mm(W_h, prev_h.t())
    next_h = i2h + h2h
    next_h2 = next_h.tanh()
    loss = next_h2.sum()
    loss.backward()
    grad_next_h2 = torch.ones_like(next_h2)
    grad_next_h = grad_next_h2 * (1 - next_h2.detach() ** 2)
    assert torch.allclose(W_h.grad, grad_next_h @ prev_h, atol=1e-6)
    assert torch.allclose(W_x.grad, grad_next_h @ x, atol=1e-6)


def test_three_faces_of_an_operator():
    """abs, abs_ and abs with out=: the internals talk's three registrations."""
    x = torch.tensor([-1.0, 2.0])
    out = torch.empty(2)
    assert torch.abs(x, out=out) is out
    assert out.tolist() == torch.abs(x).tolist() == x.clone().abs_().tolist() == [1.0, 2.0]


def test_errors_say_which_argument_is_wrong():
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="must match"):
        torch.ones(2) + torch.ones(3)
    with pytest.raises(RuntimeError, match="not implemented for"):
        torch.ones(2, 2, dtype=torch.bool) @ torch.ones(2, 2, dtype=torch.bool)


def test_no_grad_switches_recording_off():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        y = x * 2
    assert not y.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        y.sum().backward()


def test_relu_in_place_saves_memory():
    x = torch.tensor([-1.0, 2.0])
    y = F.relu(x, inplace=True)
    assert y is x or y.data_ptr() == x.data_ptr()
    assert x.tolist() == [0.0, 2.0]
