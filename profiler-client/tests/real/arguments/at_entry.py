# Run inside gdb: starts the program, stops at the first instruction of each function that it is told, and says what it reads of
# the arguments there.
#
# AT_ENTRY is JSON: the functions' addresses in the file and how many arguments each has, the addresses of the functions that call
# them, and where the program's output goes. A function may loop to its first instruction: it is stopped at once a call.
# On stdout, one JSON object a stop: the address, and for each argument {"value": JSON} or {"none": why}.
import json
import math
import os
import sys

import gdb

MAX_TEXT = 200
CHARACTERS = {"char", "signed char", "unsigned char"}


def text_at(address):
    inferior = gdb.selected_inferior()
    found = b""
    while len(found) < MAX_TEXT:
        byte = bytes(inferior.read_memory(address + len(found), 1))
        if byte == b"\0":
            break
        found += byte
    return found.decode()


# A length that is not stored yet may be any number, for which gdb would run out of memory.
def counted(value):
    length = int(value["length"])
    if length > MAX_TEXT:
        raise gdb.error("too long")
    return length


# A value in the form in which `profiler trace --json` shows it.
def shown(value, depth=0):
    if value.is_optimized_out:
        raise gdb.error("optimized out")
    kind = value.type.strip_typedefs()
    name = kind.unqualified().name or ""
    if kind.code == gdb.TYPE_CODE_BOOL:
        return bool(int(value))
    if name == "char" and kind.sizeof == 4:
        return chr(int(value))
    if kind.code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR):
        return int(value)
    if kind.code == gdb.TYPE_CODE_ENUM:
        return str(value).split("::")[-1]
    if kind.code == gdb.TYPE_CODE_FLT:
        number = float(value)
        # JSON has neither infinity nor NaN.
        return number if math.isfinite(number) else str(number)
    if kind.code == gdb.TYPE_CODE_PTR:
        address = int(value)
        # Of one that was optimized out in part, gdb's number is 0.
        if "synthetic" in str(value):
            raise gdb.error("synthetic pointer")
        if depth == 0 and address and kind.target().strip_typedefs().unqualified().name in CHARACTERS:
            return text_at(address)
        return hex(address)
    if name == "&str":
        length = counted(value)
        return bytes(gdb.selected_inferior().read_memory(int(value["data_ptr"]), length)).decode() if length else ""
    if name.startswith("&["):
        return [shown(value["data_ptr"][i], 1) for i in range(counted(value))]
    if kind.code == gdb.TYPE_CODE_STRUCT:
        return {field.name: shown(value[field], 1) for field in kind.fields()}
    if kind.code == gdb.TYPE_CODE_ARRAY:
        low, high = kind.range()
        return [shown(value[i], 1) for i in range(low, high + 1)]
    raise gdb.error(f"a {name}")


def arguments(count):
    frame = gdb.newest_frame()
    read = []
    for number in range(count):
        try:
            read.append({"value": shown(frame.read_var(f"a{number}"))})
        except (gdb.error, RuntimeError, ValueError, OverflowError) as error:
            read.append({"none": str(error)})
    return read


def main():
    told = json.loads(os.environ["AT_ENTRY"])
    for setting in ("pagination off", "confirm off", "language c", "debuginfod enabled off"):
        gdb.execute(f"set {setting}")
    gdb.execute(f"starti > {told['output']} < /dev/null", to_string=True)
    bias = 0
    with open(f"/proc/{gdb.selected_inferior().pid}/maps") as maps:
        if told["position_independent"]:
            bias = int(maps.readline().split("-")[0], 16)
    gdb.execute("set language auto")
    functions = {address + bias: (address, count) for address, count in told["functions"]}
    callers = {address + bias for address in told["callers"]}
    for address in functions.keys() | callers:
        gdb.Breakpoint(f"*{address:#x}", internal=True)
    gdb.execute("set breakpoint always-inserted on")
    is_called = False
    while True:
        gdb.execute("continue", to_string=True)
        if not gdb.selected_inferior().pid:
            break
        pc = int(gdb.newest_frame().pc())
        if pc in callers:
            is_called = True
            continue
        if not is_called:
            continue
        is_called = False
        address, count = functions[pc]
        print(json.dumps({"address": address, "arguments": arguments(count)}), file=sys.__stdout__, flush=True)


main()
