"""Prints each sample of OpenTelemetry's profiles: its measure, its stack (the outermost first), its side and its value."""

import json
import sys

from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

data = ProfilesData()
with open(sys.argv[1], "rb") as file:
    data.ParseFromString(file.read())
tables = data.dictionary
texts = tables.string_table


def frames(stack):
    for location in reversed(tables.stack_table[stack].location_indices):
        for line in reversed(tables.location_table[location].lines):
            yield texts[tables.function_table[line.function_index].name_strindex]


def attribute(sample, key):
    for index in sample.attribute_indices:
        found = tables.attribute_table[index]
        if texts[found.key_strindex] == key:
            return found.value.string_value


for resource in data.resource_profiles:
    for scope in resource.scope_profiles:
        for profile in scope.profiles:
            measure = texts[profile.sample_type.type_strindex]
            for sample in profile.samples:
                [value] = sample.values
                print(json.dumps([measure, list(frames(sample.stack_index)), attribute(sample, "side"), value]))
