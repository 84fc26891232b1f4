# Run inside gdb: starts the program, stops at the addresses that it is told, and says what it reads there.
#
# On stdout, one JSON object a line; on stdin, the answers: first the addresses, then a line for each stop, `go`.
import json
import struct
import sys

import gdb

MAX_DEPTH = 6
MAX_ELEMENTS = 8
MAX_TEXT = 200
# Variables outside of functions are where they are at every statement: they are read at one in so many stops.
GLOBALS_EVERY = 4
NUMBERS = {
    gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_PTR,
}
CHARACTERS = {"char", "signed char", "unsigned char", "char8_t"}
REFERENCES = {gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF}


def text_at(address, length=None):
    inferior = gdb.selected_inferior()
    if length is not None:
        return bytes(inferior.read_memory(address, min(length, MAX_TEXT))).hex() if length else ""
    found = b""
    while len(found) < MAX_TEXT:
        byte = bytes(inferior.read_memory(address + len(found), 1))
        if byte == b"\0":
            return found.hex()
        found += byte
    return found.hex()


def text_if_any(address):
    try:
        return text_at(address) if address else None
    except gdb.MemoryError:
        return None


def only_pointer(value):
    value_type = value.type.strip_typedefs()
    if value_type.code == gdb.TYPE_CODE_PTR:
        return value
    for field in value_type.fields():
        if field.name in ("ptr", "inner", "pointer", "buf"):
            found = only_pointer(value[field])
            if found is not None:
                return found
    return None


def counted(pointer, count):
    elements = [dump(pointer[i], 1) for i in range(min(count, MAX_ELEMENTS))] if count < 1 << 40 else []
    return {"v": elements, "n": str(count)}


# What the language's library means by a structure.
def library(value, name):
    if name.startswith("std::__cxx11::basic_string<char,"):
        length = int(value["_M_string_length"])
        return {"t": text_at(int(value["_M_dataplus"]["_M_p"]), length), "n": str(length)}
    if name.startswith("std::basic_string_view<char,"):
        length = int(value["_M_len"])
        return {"t": text_at(int(value["_M_str"]), length), "n": str(length)}
    if name == "&str":
        length = int(value["length"])
        return {"t": text_at(int(value["data_ptr"]), length), "n": str(length)}
    if name == "alloc::string::String":
        length = int(value["vec"]["len"])
        return {"t": text_at(int(only_pointer(value["vec"])), length), "n": str(length)}
    if name.startswith("&[") or name.startswith("&mut ["):
        return counted(value["data_ptr"], int(value["length"]))
    if name.startswith("alloc::vec::Vec<"):
        pointer = only_pointer(value).cast(value.type.template_argument(0).pointer())
        return counted(pointer, int(value["len"]))
    return None


def dump(value, depth=0):
    try:
        if value.is_optimized_out:
            return {"s": "optimized_out"}
        value.fetch_lazy()
        kind = value.type.strip_typedefs()
        if kind.code in REFERENCES:
            # A member that is a reference shows where it leads.
            inner = value.referenced_value()
            return dump(inner, depth) if depth == 0 else {"i": str(int(inner.address))}
        if kind.code in NUMBERS:
            # A pointer that was optimized out is 0 to Python.
            if kind.code == gdb.TYPE_CODE_PTR and "synthetic pointer" in str(value):
                return {"s": "error", "why": "synthetic pointer"}
            result = {"i": str(int(value))}
            if kind.code == gdb.TYPE_CODE_PTR and kind.target().strip_typedefs().unqualified().name in CHARACTERS:
                result["t"] = text_if_any(int(value))
            if kind.code == gdb.TYPE_CODE_ENUM:
                result["e"] = str(value)
            return result
        if kind.code == gdb.TYPE_CODE_FLT:
            if kind.sizeof not in (4, 8):
                return {"s": "skipped"}
            return {"f": str(struct.unpack("<Q", struct.pack("<d", float(value)))[0])}
        if depth == MAX_DEPTH:
            return {"s": "skipped"}
        if kind.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            if depth == 0:
                found = library(value, kind.name or "")
                if found is not None:
                    return found
            fields = [field for field in kind.fields() if hasattr(field, "bitpos") and not field.artificial
                      or field.name and field.name.startswith("_vptr")]
            # Without the number that tells its variants apart, gdb shows all of them.
            if len(fields) > 1 and all(field.type.name == f"{kind.name}::{field.name}" for field in fields):
                return {"s": "skipped"}
            # gdb 13 ends itself over a reference in a variable in pieces.
            if any(is_reference(field) for field in fields) and value.address is None:
                return {"s": "skipped"}
            return {"m": [[field.name or "", dump(value[field], depth + 1)] for field in fields]}
        if kind.code == gdb.TYPE_CODE_ARRAY:
            low, high = kind.range()
            count = high - low + 1
            return {"a": [dump(value[i], depth + 1) for i in range(low, min(high + 1, low + MAX_ELEMENTS))], "n": str(count)}
        return {"s": "skipped"}
    except gdb.MemoryError as error:
        return {"s": "unreadable", "why": str(error)}
    except (gdb.error, RuntimeError, ValueError, OverflowError) as error:
        return {"s": "error", "why": str(error)}


def is_reference(field):
    return field.type.strip_typedefs().code in REFERENCES


# Parts of a value, as expressions of their own.
def parts(name, value):
    try:
        kind = value.type.strip_typedefs()
        if kind.code in REFERENCES:
            value = value.referenced_value()
            kind = value.type.strip_typedefs()
        if kind.code == gdb.TYPE_CODE_PTR:
            target = kind.target().strip_typedefs()
            if target.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_INT, gdb.TYPE_CODE_FLT):
                yield "*" + name, value.dereference()
            if target.code == gdb.TYPE_CODE_STRUCT:
                if any(field.type.name == f"{target.name}::{field.name}" for field in value.dereference().type.fields()):
                    return
                for field in target.fields():
                    if (field.name and hasattr(field, "bitpos") and not field.is_base_class
                            and not field.artificial and not is_reference(field)):
                        yield f"{name}->{quoted(field.name)}", value.dereference()[field]
        elif kind.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            fields = [field for field in kind.fields() if hasattr(field, "bitpos") and not field.artificial]
            # Of an enum, what the variant holds that there is.
            if len(fields) == 1 and (fields[0].type.name or "").startswith(f"{kind.name}::"):
                variant = fields[0].type.name[len(kind.name) + 2:]
                if variant.isalnum() and fields[0].name and (fields[0].name == variant or fields[0].name.isdigit()):
                    for inner in fields[0].type.fields():
                        if inner.name and hasattr(inner, "bitpos") and not inner.artificial and not is_reference(inner):
                            yield f"{name}.{variant}.{quoted(inner.name)}", value[fields[0]][inner]
                    return
            if any(field.type.name == f"{kind.name}::{field.name}" for field in fields):
                return
            for field in fields:
                if is_reference(field) and value.address is None:
                    continue
                if field.name and not field.is_base_class:
                    yield f"{name}.{quoted(field.name)}", value[field]
        elif kind.code == gdb.TYPE_CODE_ARRAY and kind.target().strip_typedefs().code != gdb.TYPE_CODE_ARRAY:
            low, high = kind.range()
            yield f"{name}[{high}]", value[high]
    except (gdb.error, RuntimeError, ValueError):
        return


def quoted(name):
    return name if name.replace("_", "a").isalnum() else f'"{name}"'


def variables(frame):
    seen = {}
    try:
        # At the first instruction of an inlined call, gdb says that the frame is still the caller's.
        block = gdb.block_for_pc(frame.pc())
    except RuntimeError:
        return seen
    # Around an inlined call is the function that it was inlined into; around a lambda, one that is elsewhere.
    current = frame
    physical = frame
    while physical.type() == gdb.INLINE_FRAME and physical.older() is not None:
        physical = physical.older()
    while block is not None and not block.is_static and not block.is_global:
        for symbol in block:
            if not (symbol.is_variable or symbol.is_argument) or symbol.name in seen:
                continue
            try:
                seen[symbol.name] = symbol.value(current)
            except (gdb.error, RuntimeError, ValueError, OverflowError) as error:
                seen[symbol.name] = str(error)
        if block.function is not None and block.function.linkage_name == physical.function().linkage_name:
            break
        # What is around an inlined call belongs to the frame that it was inlined into.
        if block.function is not None and current.type() == gdb.INLINE_FRAME and current.function() is not None:
            if current.function().linkage_name == block.function.linkage_name and current.older() is not None:
                current = current.older()
        block = block.superblock
    return seen


# In a method, its object's members have names of their own.
def members(kind):
    names = []
    for field in kind.fields():
        if field.is_base_class:
            names += members(field.type.strip_typedefs())
        elif field.name and not field.artificial and not field.name.startswith("_vptr"):
            names.append(field.name)
    return names


# The names that the innermost function has itself, and whether that is the frame's: at the first instruction of an inlined
# call, gdb evaluates what is written in the caller's.
def innermost(frame):
    own = set()
    block = gdb.block_for_pc(frame.pc())
    while True:
        own.update(symbol.name for symbol in block)
        if block.function is not None:
            return own, block.function.linkage_name == frame.function().linkage_name
        block = block.superblock


def state(expressions):
    frame = gdb.newest_frame()
    read = {}
    found = variables(frame)
    own, is_frame = innermost(frame) if "this" in found else (set(), False)
    if "this" in own and isinstance(found["this"], gdb.Value):
        kind = found["this"].type.strip_typedefs()
        if kind.code == gdb.TYPE_CODE_PTR and kind.target().strip_typedefs().code == gdb.TYPE_CODE_STRUCT:
            # They hide what is outside of the function.
            hiding = [name for name in members(kind.target().strip_typedefs()) if name not in own]
            found = {name: value for name, value in found.items() if name not in hiding}
            expressions = expressions + (hiding if is_frame else [])
    for expression in expressions:
        try:
            found[expression] = gdb.parse_and_eval(expression)
        except (gdb.error, RuntimeError, ValueError) as error:
            found[expression] = str(error)
    for name, value in found.items():
        if isinstance(value, str):
            read[name] = {"s": "error", "why": value}
            continue
        read[name] = dump(value)
        for part, inner in parts(name, value):
            read[part] = dump(inner)
    registers = ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip"]
    number = lambda name: str(int(frame.read_register(name)) & (1 << 64) - 1)
    return {"registers": [number(name) for name in registers], "fs_base": number("fs_base"), "values": read,
            "function": frame.name()}


def main():
    gdb.execute("set pagination off")
    gdb.execute("set confirm off")
    gdb.execute("set breakpoint pending off")
    gdb.execute("starti > /dev/null < /dev/null", to_string=True)
    say = lambda what: (sys.__stdout__.write(json.dumps(what) + "\n"), sys.__stdout__.flush())
    say({"pid": gdb.selected_inferior().pid})
    told = json.loads(sys.stdin.readline())
    breakpoints = {}
    for address in told["addresses"]:
        breakpoints[address] = gdb.Breakpoint(f"*{address:#x}", internal=True)
    # Or each stop takes all of them out, and puts them back in.
    gdb.execute("set breakpoint always-inserted on")
    stops = 0
    while breakpoints:
        gdb.execute("continue", to_string=True)
        if not gdb.selected_inferior().pid:
            break
        address = int(gdb.newest_frame().pc())
        if address not in breakpoints:
            break
        say(state(told["expressions"] if stops % GLOBALS_EVERY == 0 else []))
        stops += 1
        breakpoints.pop(address).delete()
        if sys.stdin.readline().strip() != "go":
            break
    say({"end": True})
    if gdb.selected_inferior().pid:
        gdb.execute("kill")


main()
