"""Image files. torchvision's decoders do not load beside a CPU build, so Pillow's own results and known values judge."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision.io import (
    ImageReadMode,
    decode_avif,
    decode_gif,
    decode_heic,
    decode_image,
    decode_jpeg,
    decode_png,
    decode_webp,
    encode_jpeg,
    encode_png,
    read_file,
    read_image,
    write_file,
    write_jpeg,
    write_png,
)

Image = pytest.importorskip("PIL.Image", reason="reads and writes images: pip install pillow")


def pixels(*shape, seed=0):
    return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)


def picture(mode, size=(6, 9)):
    channels = len(Image.new(mode, (1, 1)).getbands())
    array = pixels(*size) if channels == 1 else pixels(*size, channels)
    return Image.fromarray(array) if mode != "P" else Image.fromarray(array).convert("P")


def encoded(image, file_format, **options):
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def chw(image):
    array = np.asarray(image)
    return array.reshape(*array.shape[:2], -1).transpose(2, 0, 1)


def test_modes():
    assert ImageReadMode.RGBA is ImageReadMode.RGB_ALPHA
    assert [m.value for m in ImageReadMode] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_png(mode):
    image = picture(mode)
    data = encoded(image, "PNG")
    assert np.array_equal(decode_png(data).numpy(), chw(image))
    assert np.array_equal(decode_image(data).numpy(), chw(image))
    for kind, wanted in (("RGB", "RGB"), ("rgba", "RGBA"), (ImageReadMode.RGB_ALPHA, "RGBA")):
        assert np.array_equal(decode_png(data, kind).numpy(), chw(image.convert(wanted)))
    grey = decode_png(data, "GRAY").numpy()
    assert grey.shape == (1, 6, 9) and np.abs(grey.astype(int) - chw(image.convert("L"))).max() <= 1
    both = decode_png(data, "GRAY_ALPHA").numpy()
    assert both.shape == (2, 6, 9) and np.array_equal(both[:1], grey)
    assert np.array_equal(both[1], chw(image.convert("RGBA"))[3])


def test_grey_of_colours():
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [10, 20, 30]]], np.uint8)
    assert decode_png(encoded(Image.fromarray(colours), "PNG"), "GRAY").tolist() == [[[76, 150, 29, 255, 18]]]


def test_png_of_one_and_sixteen_bits_and_with_palette():
    bits = Image.fromarray(pixels(4, 8) > 128)
    assert np.array_equal(decode_png(encoded(bits, "PNG")).numpy(), chw(bits) * np.uint8(255))
    deep = np.random.RandomState(0).randint(0, 1 << 16, (5, 4)).astype(np.uint16)
    data = encoded(Image.fromarray(deep), "PNG")
    found = decode_png(data)
    assert found.dtype is torch.uint16 and np.array_equal(found.numpy()[0], deep)
    assert np.array_equal(decode_png(data, "RGB").numpy(), np.repeat(deep[None], 3, 0))
    assert (decode_png(data, "RGBA").numpy()[3] == 65535).all()
    colours = picture("RGB").quantize(8)
    assert decode_png(encoded(colours, "PNG", bits=8)).shape == (1, 6, 9)  # the numbers of the colours
    assert np.array_equal(decode_png(encoded(colours, "PNG"), "RGB").numpy(), chw(colours.convert("RGB")))


def test_png_with_deep_colours_is_refused():
    data = bytearray(encode_png(torch.zeros(3, 2, 2, dtype=torch.uint8)).numpy().tobytes())
    rows = b"".join(b"\0" + bytes(12) for _ in range(2))
    import struct
    import zlib

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    deep = (
        data[:8]
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    with pytest.raises(RuntimeError, match="16 bits in several channels"):
        decode_png(torch.frombuffer(deep, dtype=torch.uint8))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_jpeg(mode):
    image = picture(mode, (16, 24))
    data = encoded(image, "JPEG", quality=90)
    stored = Image.open(io.BytesIO(data.numpy().tobytes()))
    assert np.array_equal(decode_jpeg(data).numpy(), chw(stored))
    assert np.array_equal(decode_image(data, "RGB").numpy(), chw(stored.convert("RGB")))
    brightness = Image.open(io.BytesIO(data.numpy().tobytes()))
    brightness.draft("YCbCr", brightness.size)  # what the file itself holds: brightness and two differences of colour
    assert np.array_equal(decode_jpeg(data, ImageReadMode.GRAY).numpy()[0], chw(brightness)[0])
    with pytest.raises(RuntimeError, match="not supported for JPEG"):
        decode_jpeg(data, "RGBA")
    assert [x.shape for x in decode_jpeg([data, data])] == [(len(mode), 16, 24)] * 2
    with pytest.raises(ValueError, match="at least one"):
        decode_jpeg([])
    with pytest.raises(ValueError, match="must be tensors"):
        decode_jpeg([data, 3])


def test_orientation():
    image = picture("RGB", (8, 16))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    for file_format in ("PNG", "JPEG"):
        data = encoded(image, file_format, exif=exif)
        assert decode_image(data).shape == (3, 8, 16)
        turned = decode_image(data, apply_exif_orientation=True)
        assert turned.shape == (3, 16, 8)
        assert torch.equal(turned, decode_image(data).rot90(-1, (1, 2)))


def test_other_formats():
    image = picture("RGB")
    assert np.array_equal(decode_image(encoded(image, "WEBP", lossless=True)).numpy(), chw(image))
    clear = picture("RGBA")
    data = encoded(clear, "WEBP", lossless=True, exact=True)
    assert np.array_equal(decode_webp(data).numpy(), chw(clear))
    assert decode_webp(data, "RGB").shape == (3, 6, 9)
    with pytest.warns(UserWarning, match="UNCHANGED is used"):
        assert decode_webp(data, "GRAY").shape == (4, 6, 9)
    frames = [Image.fromarray(pixels(6, 9, seed=n)) for n in range(3)]
    assert np.array_equal(decode_gif(encoded(frames[0], "GIF")).numpy(), chw(frames[0].convert("RGB")))
    several = decode_image(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert several.shape == (3, 3, 6, 9) and np.array_equal(several[2].numpy(), chw(frames[2].convert("RGB")))
    from PIL import features

    if "avif" in features.get_supported_modules():
        assert decode_avif(encoded(image, "AVIF")).shape == decode_image(encoded(image, "AVIF")).shape == (3, 6, 9)
    else:
        with pytest.raises(RuntimeError, match="AVIF"):
            decode_avif(encoded(image, "PNG"))
    if ".heic" not in Image.registered_extensions():
        with pytest.raises(RuntimeError, match="pillow-heif"):
            decode_heic(encoded(image, "PNG"))


@pytest.mark.parametrize("channels", [1, 3])
def test_encoding(channels, tmp_path):
    image = torch.from_numpy(pixels(channels, 10, 12))
    for level in (0, 6, 9):
        assert torch.equal(decode_png(encode_png(image, level)), image)
    smooth = torch.arange(16, dtype=torch.uint8).repeat(channels, 16, 1) * 8
    assert (decode_jpeg(encode_jpeg(smooth, 95)).int() - smooth.int()).abs().max() <= 4
    assert len(encode_jpeg([smooth, smooth])) == 2
    write_png(image, tmp_path / "x.png")
    assert torch.equal(read_image(str(tmp_path / "x.png")), image)
    assert torch.equal(decode_image(tmp_path / "x.png"), image)
    write_jpeg(smooth, tmp_path / "x.jpg", 95)
    assert torch.equal(read_image(tmp_path / "x.jpg"), decode_jpeg(encode_jpeg(smooth, 95)))


def test_encoding_refuses():
    good = torch.zeros(3, 4, 4, dtype=torch.uint8)
    for image, message in [
        (good.float(), "uint8"), (good[0], "3-dimensional"), (good[:2], "1 or 3, got: 2"), (good[:, :0], "empty"),
        (torch.empty(3, 4, 4, dtype=torch.uint8, device="meta"), "on CPU"),
    ]:  # fmt: skip
        for function in (encode_png, encode_jpeg):
            with pytest.raises(RuntimeError, match=message):
                function(image)
    with pytest.raises(RuntimeError, match="Compression level"):
        encode_png(good, 10)
    with pytest.raises(ValueError, match="between 1 and 100"):
        encode_jpeg(good, 0)
    with pytest.raises(ValueError, match="at least one"):
        encode_jpeg([])


def test_files(tmp_path):
    data = torch.arange(256).to(torch.uint8)
    write_file(tmp_path / "x", data)
    assert torch.equal(read_file(tmp_path / "x"), data) and torch.equal(read_file(str(tmp_path / "x")), data)
    with pytest.raises(RuntimeError, match=r"\[Errno 2\] No such file or directory: '.*absent'"):
        read_file(tmp_path / "absent")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(RuntimeError, match="non empty"):
        read_file(tmp_path / "empty")
    with pytest.raises(RuntimeError, match="uint8"):
        write_file(tmp_path / "y", data.int())
    with pytest.raises(RuntimeError, match="1-dimensional"):
        write_file(tmp_path / "y", data[None])
    with pytest.raises(RuntimeError, match="output file"):
        write_file(tmp_path / "nowhere" / "y", data)


def test_damaged_images():
    good = {f: encoded(picture("RGB", (20, 20)), f) for f in ("PNG", "JPEG", "GIF", "WEBP")}
    for data in good.values():
        for cut in (20, len(data) // 2):
            with pytest.raises(RuntimeError, match="cannot decode|Unsupported"):
                decode_image(data[:cut])
    with pytest.raises(RuntimeError, match="cannot decode"):
        decode_png(good["JPEG"])
    for bad, message in [
        (torch.zeros(0, dtype=torch.uint8), "non empty"), (torch.zeros(3, 3, dtype=torch.uint8), "1-dimensional"),
        (torch.zeros(9), "torch.uint8"), (torch.zeros(99, dtype=torch.uint8), "Unsupported image file"),
    ]:  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            decode_image(bad)
    with pytest.raises(KeyError):
        decode_image(good["PNG"], "CMYK")


def test_without_pillow(monkeypatch):
    data = encoded(picture("RGB"), "PNG")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="pip install 'flambeau\\[vision\\]'"):
        decode_image(data)
