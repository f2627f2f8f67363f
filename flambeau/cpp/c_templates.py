"""The fixed parts of an exported model's C files: those in `templates/`, and short ones. `${...}` is filled in by `c_program`."""

from pathlib import Path

_FOLDER = Path(__file__).parent / "templates"


def template(name: str) -> str:
    """Return the text of a file in `templates/`."""
    return (_FOLDER / name).read_text(encoding="utf-8")


EMBEDDED = """
__asm__(
  ".pushsection .data\\n.balign 64\\nNAME_weights:\\n.incbin \\"FILE\\"\\n.byte 0\\n.popsection\\n");
extern char NAME_weights[] __attribute__((visibility("hidden")));
static char *find_weights(const char *path) { return path ? map_file(path) : NAME_weights; }
"""

BESIDE = """
static char *find_weights(const char *path) {
  char place[4096];
  return map_file(path ? path : beside(WEIGHTS, place, sizeof place));
}
"""

# oneDNN is looked for beside the library, where it was when the library was written, and in the system's folders.
ONEDNN_LOADING = """if (!(libdnnl = dlopen(beside("FILE", path, sizeof path), RTLD_NOW | RTLD_LOCAL)) &&
      !(libdnnl = dlopen("PATH", RTLD_NOW | RTLD_LOCAL)) && !(libdnnl = dlopen("FILE", RTLD_NOW | RTLD_LOCAL))) {
    snprintf(message, sizeof message, "oneDNN: %s", dlerror());
    return 1;
  }"""

ONEDNN_START = """CHECK(dnnl_engine_create(&m->engine, 1, 0));
  CHECK(dnnl_stream_create(&m->stream, m->engine, 1));
  CHECK(dnnl_primitive_attr_create(&m->attributes));
  CHECK(dnnl_primitive_attr_set_scratchpad_mode(m->attributes, 1)); /* scratch space is the workspace */
"""

ONEDNN_END = (
    "  if (m->attributes) dnnl_primitive_attr_destroy(m->attributes);",
    "  if (m->stream) dnnl_stream_destroy(m->stream);",
    "  if (m->engine) dnnl_engine_destroy(m->engine);",
)
