"""Prints each histogram of OpenTelemetry's metrics: its name, its attributes, its count and what is in its buckets."""

import json
import sys

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

data = MetricsData()
with open(sys.argv[1], "rb") as file:
    data.ParseFromString(file.read())
for resource in data.resource_metrics:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            for point in metric.exponential_histogram.data_points:
                attributes = {kept.key: kept.value.string_value for kept in point.attributes}
                buckets = point.positive
                counts = [
                    [buckets.offset + index, count] for index, count in enumerate(buckets.bucket_counts) if count
                ]
                print(json.dumps([metric.name, attributes, point.count, point.zero_count, point.scale, counts]))
