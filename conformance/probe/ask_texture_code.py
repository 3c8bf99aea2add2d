"""Which instructions on textures and surfaces the driver compiles, and what queries return."""

from section import Section
from texture_tools import (
    CUBEMAP,
    GATHER,
    LAYERED,
    LINEAR,
    NORMALIZED,
    SRGB,
    SURFACE,
    WRAP,
    array,
    loaded,
    mipmap,
    of_array,
    of_linear,
    of_mipmap,
    of_pitched,
    reading,
    run,
    surface,
    texture,
    words,
)

section = Section("texture_code")

R = "{%r11, %r12, %r13, %r14}"
P2, P3, P4 = "{%f1, %f2}", "{%f1, %f2, %f3, %f3}", "{%r4, %f1, %f2, %f3}"
FORMS = f"""
tex.1d.v4.f32.f32 {R}, [%rd1, %f1];
tex.1d.v4.f32.f32 {R}, [%rd1, {{%f1}}];
tex.1d.v4.s32.f32 {R}, [%rd1, %f1];
tex.1d.v4.u32.f32 {R}, [%rd1, %f1];
tex.1d.v4.b32.f32 {R}, [%rd1, %f1];
tex.1d.v4.f16.f32 {{%h1, %h2, %h3, %h4}}, [%rd1, %f1];
tex.1d.v2.f16x2.f32 {{%r11, %r12}}, [%rd1, %f1];
tex.1d.v2.f32.f32 {{%r11, %r12}}, [%rd1, %f1];
tex.1d.f32.f32 %r11, [%rd1, %f1];
tex.1d.v4.f32.u32 {R}, [%rd1, %r1];
tex.1d.v4.f32.s32 {R}, [%rd1, %r1];
tex.2d.v4.f32.f32 {R}, [%rd1, {P2}];
tex.2d.v4.f32.f32 {R}, [%rd1, %f1];
tex.2d.v4.f32.f32 {R}, [%rd1, {{%f1, %f2, %f3, %f4}}];
tex.2d.v4.f32.f32 {R}, [%rd1, {P2}], {{%r1, %r2}};
tex.2d.v4.f32.f32 {R}|%p2, [%rd1, {P2}];
tex.2d.v4.f32.f32 {R}, [%rd1+8, {P2}];
tex.2d.v4.f32.f32 {R}, [%rd1, %rd1, {P2}];
tex.3d.v4.f32.f32 {R}, [%rd1, {P3}];
tex.a1d.v4.f32.f32 {R}, [%rd1, {{%r4, %f1}}];
tex.a1d.v4.f32.f32 {R}, [%rd1, {{%f4, %f1}}];
tex.a2d.v4.f32.f32 {R}, [%rd1, {P4}];
tex.a2d.v4.f32.s32 {R}, [%rd1, {{%r4, %r1, %r2, %r2}}];
tex.cube.v4.f32.f32 {R}, [%rd1, {P3}];
tex.cube.v4.f32.s32 {R}, [%rd1, {{%r1, %r2, %r3, %r3}}];
tex.acube.v4.f32.f32 {R}, [%rd1, {P4}];
tex.level.2d.v4.f32.f32 {R}, [%rd1, {P2}], %f3;
tex.level.2d.v4.f32.s32 {R}, [%rd1, {{%r1, %r2}}], %r3;
tex.level.2d.v4.f32.s32 {R}, [%rd1, {{%r1, %r2}}], %f3;
tex.base.2d.v4.f32.f32 {R}, [%rd1, {P2}];
tex.grad.1d.v4.f32.f32 {R}, [%rd1, %f1], %f2, %f3;
tex.grad.1d.v4.f32.f32 {R}, [%rd1, %f1], {{%f2}}, {{%f3}};
tex.grad.2d.v4.f32.f32 {R}, [%rd1, {P2}], {P2}, {P2};
tex.grad.3d.v4.f32.f32 {R}, [%rd1, {P3}], {P3}, {P3};
tex.2dms.v4.f32.s32 {R}, [%rd1, {{%r1, %r1, %r2, %r2}}];
tld4.r.2d.v4.f32.f32 {R}, [%rd1, {P2}];
tld4.a.2d.v4.u32.f32 {R}, [%rd1, {P2}];
tld4.r.a2d.v4.f32.f32 {R}, [%rd1, {P4}];
tld4.r.cube.v4.f32.f32 {R}, [%rd1, {P3}];
tld4.r.acube.v4.f32.f32 {R}, [%rd1, {P4}];
tld4.r.1d.v4.f32.f32 {R}, [%rd1, %f1];
tld4.2d.v4.f32.f32 {R}, [%rd1, {P2}];
tld4.r.2d.v4.f32.s32 {R}, [%rd1, {{%r1, %r2}}];
tld4.r.2d.v4.f32.f32 {R}, [%rd1, {P2}], {{%r1, %r2}};
suld.b.1d.b8.trap %h1, [%rd1, %r1];
suld.b.1d.b8.trap %r11, [%rd1, %r1];
suld.b.1d.b16.trap %h1, [%rd1, %r1];
suld.b.1d.b32.trap %r11, [%rd1, %r1];
suld.b.1d.b32.trap %r11, [%rd1, {{%r1}}];
suld.b.1d.b32 %r11, [%rd1, %r1];
suld.b.1d.b64.trap %rd9, [%rd1, %r1];
suld.b.1d.u32.trap %r11, [%rd1, %r1];
suld.b.1d.s32.trap %r11, [%rd1, %r1];
suld.b.1d.f32.trap %f1, [%rd1, %r1];
suld.b.1d.u64.trap %rd9, [%rd1, %r1];
suld.b.1d.v2.b64.trap {{%rd8, %rd9}}, [%rd1, %r1];
suld.b.1d.v4.b64.trap {{%rd8, %rd9, %rd8, %rd9}}, [%rd1, %r1];
suld.b.1d.v4.b32.trap {R}, [%rd1, %r1];
suld.b.1d.b128.trap %rd9, [%rd1, %r1];
suld.b.2d.b32.trap %r11, [%rd1, {{%r1, %r2}}];
suld.b.2d.b32.trap.ca %r11, [%rd1, {{%r1, %r2}}];
suld.b.2d.ca.b32.trap %r11, [%rd1, {{%r1, %r2}}];
suld.b.3d.b32.trap %r11, [%rd1, {{%r1, %r2, %r3, %r3}}];
suld.b.a1d.b32.trap %r11, [%rd1, {{%r3, %r1}}];
suld.b.a2d.b32.trap %r11, [%rd1, {{%r3, %r1, %r2, %r2}}];
suld.b.cube.b32.trap %r11, [%rd1, {{%r1, %r2, %r3, %r3}}];
suld.p.1d.v4.b32.trap {R}, [%rd1, %r1];
suld.p.1d.v4.f32.trap {R}, [%rd1, %r1];
suld.p.1d.b32.trap %r11, [%rd1, %r1];
suld.b.1d.b32.mirror %r11, [%rd1, %r1];
suld.1d.b32.trap %r11, [%rd1, %r1];
suld.b.1d.v4.b32.zero {R}, [%rd1, %r1];
suld.b.1d.b32.clamp %r11, [%rd1, %r1];
sust.b.1d.b8.trap [%rd1, %r1], %h1;
sust.b.1d.b32.trap [%rd1, %r1], %r11;
sust.b.1d.u32.trap [%rd1, %r1], %r11;
sust.b.1d.f32.trap [%rd1, %r1], %f1;
sust.b.1d.b64.clamp [%rd1, %r1], %rd8;
sust.b.1d.b64.zero [%rd1, %r1], %rd8;
sust.b.1d.v2.b64.zero [%rd1, %r1], {{%rd8, %rd9}};
sust.b.1d.b32 [%rd1, %r1], %r11;
sust.b.1d.wb.b32.trap [%rd1, %r1], %r11;
sust.b.2d.b32.trap [%rd1, {{%r1, %r2}}], %r11;
sust.p.1d.b32.trap [%rd1, %r1], %r11;
sust.p.1d.u32.trap [%rd1, %r1], %r11;
sust.p.1d.f32.trap [%rd1, %r1], %f1;
sust.p.1d.b64.trap [%rd1, %r1], %rd8;
sust.p.1d.b16.trap [%rd1, %r1], %h1;
sust.p.1d.v4.b32.trap [%rd1, %r1], {R};
sust.p.1d.v2.b32.clamp [%rd1, %r1], {{%r11, %r12}};
sust.p.1d.v2.b32.zero [%rd1, %r1], {{%r11, %r12}};
sust.p.2d.b32.trap [%rd1, {{%r1, %r2}}], %r11;
sust.p.3d.b32.trap [%rd1, {{%r1, %r2, %r3, %r3}}], %r11;
sust.p.a1d.b32.trap [%rd1, {{%r3, %r1}}], %r11;
sust.p.a2d.b32.trap [%rd1, {{%r3, %r1, %r2, %r2}}], %r11;
sured.b.add.1d.u32.trap [%rd1, %r1], %r11;
sured.b.add.1d.s32.trap [%rd1, %r1], %r11;
sured.b.add.1d.b32.trap [%rd1, %r1], %r11;
sured.b.add.1d.u64.trap [%rd1, %r1], %rd8;
sured.b.add.1d.s64.trap [%rd1, %r1], %rd8;
sured.b.add.1d.f32.trap [%rd1, %r1], %f1;
sured.b.min.1d.u32.trap [%rd1, %r1], %r11;
sured.b.min.1d.s32.trap [%rd1, %r1], %r11;
sured.b.min.1d.u64.trap [%rd1, %r1], %rd8;
sured.b.max.1d.s64.trap [%rd1, %r1], %rd8;
sured.b.min.1d.b32.trap [%rd1, %r1], %r11;
sured.b.and.1d.b32.trap [%rd1, %r1], %r11;
sured.b.and.1d.u32.trap [%rd1, %r1], %r11;
sured.b.and.1d.b64.trap [%rd1, %r1], %rd8;
sured.b.or.1d.b64.trap [%rd1, %r1], %rd8;
sured.b.xor.1d.b32.trap [%rd1, %r1], %r11;
sured.b.add.1d.u32 [%rd1, %r1], %r11;
sured.b.add.1d.u32.zero [%rd1, %r1], %r11;
sured.b.add.2d.u32.trap [%rd1, {{%r1, %r2}}], %r11;
sured.b.add.3d.u32.trap [%rd1, {{%r1, %r2, %r3, %r3}}], %r11;
sured.b.add.a1d.u32.trap [%rd1, {{%r3, %r1}}], %r11;
sured.b.add.a2d.u32.trap [%rd1, {{%r3, %r1, %r2, %r2}}], %r11;
sured.p.add.1d.b32.trap [%rd1, %r1], %r11;
sured.p.add.1d.u32.trap [%rd1, %r1], %r11;
sured.p.min.1d.b32.trap [%rd1, %r1], %r11;
sured.p.and.1d.b32.trap [%rd1, %r1], %r11;
sured.b.add.1d.v2.u32.trap [%rd1, %r1], {{%r11, %r12}};
txq.width.b32 %r11, [%rd1];
txq.height.b32 %r11, [%rd1];
txq.depth.b32 %r11, [%rd1];
txq.array_size.b32 %r11, [%rd1];
txq.num_mipmap_levels.b32 %r11, [%rd1];
txq.num_samples.b32 %r11, [%rd1];
txq.channel_data_type.b32 %r11, [%rd1];
txq.channel_order.b32 %r11, [%rd1];
txq.normalized_coords.b32 %r11, [%rd1];
txq.force_unnormalized_coords.b32 %r11, [%rd1];
txq.filter_mode.b32 %r11, [%rd1];
txq.addr_mode_0.b32 %r11, [%rd1];
txq.addr_mode_1.b32 %r11, [%rd1];
txq.addr_mode_2.b32 %r11, [%rd1];
txq.level.width.b32 %r11, [%rd1], 1;
txq.level.height.b32 %r11, [%rd1], %r1;
txq.level.depth.b32 %r11, [%rd1], 0;
txq.level.array_size.b32 %r11, [%rd1], 1;
txq.level.num_mipmap_levels.b32 %r11, [%rd1], 1;
txq.width.u32 %r11, [%rd1];
txq.width.b64 %rd9, [%rd1];
txq.width.b32 %r11, [%rd1+8];
suq.width.b32 %r11, [%rd1];
suq.height.b32 %r11, [%rd1];
suq.depth.b32 %r11, [%rd1];
suq.array_size.b32 %r11, [%rd1];
suq.channel_data_type.b32 %r11, [%rd1];
suq.channel_order.b32 %r11, [%rd1];
suq.memory_layout.b32 %r11, [%rd1];
suq.num_mipmap_levels.b32 %r11, [%rd1];
istypep.texref %p2, %rd1;
istypep.surfref %p2, %rd1;
istypep.samplerref %p2, %rd1;
"""
for _version, _target in (("7.5", "sm_75"), ("8.1", "sm_90")):
    for _form in filter(None, map(str.strip, FORMS.splitlines())):

        def _load(p, form=_form, version=_version, target=_target):
            found = loaded(p, form, version=version, target=target)
            return found if isinstance(found, str) else "SUCCESS"

        section.ask(f"PTX {_version}: {_form}", _load)

DECLARED = {
    "a .texref that is used": ".global .texref t;",
    "a .surfref": ".global .surfref t;",
    "a .samplerref": ".global .samplerref t;",
}
for _name, _before in DECLARED.items():
    section.ask(
        f"declared: {_name}",
        lambda p, before=_before: (
            "SUCCESS"
            if isinstance(loaded(p, "", before=before), int)
            else loaded(p, "", before=before)
        ),
    )
section.ask(
    "declared: read through a .texref",
    lambda p: _said(loaded(p, f"tex.1d.v4.f32.f32 {R}, [t, %f1];", before=".global .texref t;")),
)
section.ask(
    "declared: independent texture mode",
    lambda p: _said(loaded(p, "", target="sm_75, texmode_independent")),
)


def _said(found):
    return found if isinstance(found, str) else "SUCCESS"


TEXTURES = {
    "row": lambda p: of_array(array(p, 20)),
    "plane": lambda p: of_array(array(p, 20, 9, kind="f4", channels=4)),
    "volume": lambda p: of_array(array(p, 20, 9, 5)),
    "layers of rows": lambda p: of_array(array(p, 20, 0, 5, flags=LAYERED)),
    "layers": lambda p: of_array(array(p, 20, 9, 5, flags=LAYERED)),
    "cube": lambda p: of_array(array(p, 8, 8, 6, flags=CUBEMAP)),
    "cubes": lambda p: of_array(array(p, 8, 8, 12, flags=CUBEMAP | LAYERED)),
    "gather": lambda p: of_array(array(p, 20, 9, flags=GATHER)),
    "levels": lambda p: of_mipmap(mipmap(p, 3, 20, 9)),
    "linear memory": lambda p: of_linear(p.device(4096), 80),
    "pitched memory": lambda p: of_pitched(p.device(4096), 20, 9, 96),
}
QUERIES = [
    "width",
    "height",
    "depth",
    "array_size",
    "num_mipmap_levels",
    "num_samples",
    "channel_data_type",
    "channel_order",
    "normalized_coords",
    "force_unnormalized_coords",
    "filter_mode",
    "addr_mode_0",
    "addr_mode_1",
    "addr_mode_2",
]
for _name, _of in TEXTURES.items():
    for _query in QUERIES:

        def _ask(p, of=_of, query=_query):
            handle = texture(p, of(p), reading(flags=NORMALIZED))
            return words(run(p, f"txq.{query}.b32 %r11, [%rd1];", handle, [(0,)]))

        section.ask(f"txq of {_name}: {_query}", _ask)
for _query in ["width", "height", "depth", "array_size", "num_mipmap_levels"]:

    def _ask_level(p, query=_query):
        handle = texture(p, of_mipmap(mipmap(p, 3, 20, 9)), reading(flags=NORMALIZED))
        body = f"txq.level.{query}.b32 %r11, [%rd1], %r1;"
        return words(run(p, body, handle, [(level,) for level in (0, 1, 2, 3, 99, -1)]))

    section.ask(f"txq of each level: {_query}", _ask_level)
for _name, _how in {
    "plain": reading(),
    "means, wrapped": reading(WRAP, LINEAR, NORMALIZED),
    "sRGB": reading(flags=SRGB),
    "modes": reading((3, 2, 1), flags=NORMALIZED),
}.items():
    for _query in QUERIES[6:]:

        def _ask_how(p, how=_how, query=_query):
            handle = texture(p, of_array(array(p, 20, 9, channels=4)), how)
            return words(run(p, f"txq.{query}.b32 %r11, [%rd1];", handle, [(0,)]))

        section.ask(f"txq of {_name}: {_query}", _ask_how)
SURFACES = {
    "row": lambda p: array(p, 20, flags=SURFACE),
    "plane": lambda p: array(p, 20, 9, kind="f4", channels=4, flags=SURFACE),
    "volume": lambda p: array(p, 20, 9, 5, flags=SURFACE),
    "layers of rows": lambda p: array(p, 20, 0, 5, flags=SURFACE | LAYERED),
    "layers": lambda p: array(p, 20, 9, 5, flags=SURFACE | LAYERED),
    "cube": lambda p: array(p, 8, 8, 6, flags=SURFACE | CUBEMAP),
}
for _name, _of in SURFACES.items():
    for _query in [
        "width",
        "height",
        "depth",
        "array_size",
        "channel_data_type",
        "channel_order",
        "memory_layout",
    ]:

        def _ask_surface(p, of=_of, query=_query):
            return words(run(p, f"suq.{query}.b32 %r11, [%rd1];", surface(p, of(p)), [(0,)]))

        section.ask(f"suq of {_name}: {_query}", _ask_surface)
