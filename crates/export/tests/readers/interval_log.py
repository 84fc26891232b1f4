"""Prints each interval of an HdrHistogram log: its tag, when it began (s), and [highest value, count] of each bucket."""

import json
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 1 << 42, 2))
while True:
    histogram = reader.get_next_interval_histogram()
    if histogram is None:
        break
    buckets = [
        [item.value_iterated_to, item.count_at_value_iterated_to]
        for item in histogram.get_recorded_iterator()
    ]
    print(json.dumps([histogram.get_tag(), histogram.get_start_time_stamp() / 1000, buckets]))
