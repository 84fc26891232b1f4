//! Counters over time of a recording: the buckets of a part of its time, some of them as one where longer ones are asked for.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use profiler_aggregate::timeline::Counted;
use profiler_scope::Scope;
use profiler_symbolize::Frames;
use tokio::sync::mpsc;

use super::{
    super::{
        ending::Ending,
        error::{Reason, SessionError},
        picture::Cost,
        timeline::{ThreadCounted, TimelineBucket, TimelineRequest, Told},
    },
    asked,
    begun::{self, nothing},
    part::{LATE_NS, Part, end_of_part},
    unreadable,
};
use crate::{
    kernel::Counter,
    recording::{self, Also, RecordedBucket, Recording, Wanted},
};

/// Buckets that one view shows; the oldest give way, and are said to be missed.
const MAX_BUCKETS: usize = 36_000;

/// Threads that are counted by themselves in a bucket, of all in its time.
const MAX_THREADS: usize = 4096;

/// Counts in all of them, threads' included.
const MAX_COUNTS: usize = 2_000_000;

/// The counters of a part.
///
/// # Errors
/// Where nothing was recorded, or not what is asked for, or it cannot be read.
pub fn timeline(
    recording: &mut Recording,
    asked: Option<&Scope>,
    part: Part,
    request: &TimelineRequest,
    is_awaited: &dyn Fn() -> bool,
) -> Result<mpsc::Receiver<TimelineBucket>, SessionError> {
    let begun = begun::begin(recording, asked, part)?;
    let begin_ns = recording.begin_ns();
    let mut taken = Taken {
        request,
        chosen: None,
        buckets: VecDeque::new(),
        counts: 0,
        open: None,
        missed: 0,
        recorded_lost: None,
        failed: None,
    };
    let mut scope = None;
    let (mut is_same_scope, mut edited_ns, mut missing_ns) = (true, None, 0);
    let wanted = Wanted {
        from_ns: part.begin_ns,
        by: None,
        also: Some(Also::Counters),
        answers: None,
    };
    let mut take = |read: recording::Part| match read {
        recording::Part::Summary(_) => true,
        recording::Part::Missing { from_ns, to_ns } => {
            let to_ns = to_ns.min(part.end_ns);
            let more_ns = to_ns.saturating_sub(from_ns.max(part.begin_ns));
            missing_ns = u64::saturating_add(missing_ns, more_ns);
            true
        }
        recording::Part::Batch(batch) => {
            if let Some((told, _)) = &batch.scope {
                let steps: Vec<_> = told.steps.iter().map(asked::without_durations).collect();
                let before = scope.replace(steps.clone());
                if before.is_some_and(|before| before != steps) && batch.from_ns > part.begin_ns {
                    edited_ns = Some(batch.from_ns);
                    return false;
                }
                // Calls are those of the last recorded step.
                is_same_scope = asked.is_none_or(|asked| asked.steps.len() == steps.len());
            }
            if let Some(counted) = batch.counted {
                let inside =
                    |bucket: &RecordedBucket| bucket.from_ns >= part.begin_ns && bucket.to_ns <= part.end_ns;
                for mut bucket in counted.buckets.into_iter().filter(inside) {
                    bucket.calls = bucket.calls.filter(|_| is_same_scope);
                    if !taken.take(bucket, &counted.told, counted.threads) {
                        return false;
                    }
                }
            }
            batch.from_ns <= part.end_ns.saturating_add(LATE_NS)
        }
    };
    recording
        .read(wanted, &mut Frames::default(), |read, _| {
            is_awaited() && take(read)
        })
        .map_err(|error| unreadable(&error))?;
    let reason = end_of_part(begin_ns, edited_ns, missing_ns);
    taken.end(&begun.scope.into(), &Ending::of_recording(reason))
}

/// The recorded counters that are asked for.
struct Chosen {
    told: Told,
    /// By their places in what was recorded.
    places: Vec<usize>,
    /// The names that were recorded, in order.
    of: Vec<String>,
}

impl Chosen {
    fn of(request: &TimelineRequest, told: &Told, has_threads: bool) -> Result<Self, SessionError> {
        if request.threads && !has_threads {
            return Err(refused(
                "the recording counts all threads together: record with --threads for each by itself",
            ));
        }
        if request.counters.is_empty() {
            return Ok(Self {
                told: told.clone(),
                places: (0..told.counters.len()).collect(),
                of: told.counters.clone(),
            });
        }
        let recorded: Vec<Option<Counter>> = told.counters.iter().map(|name| Counter::parse(name)).collect();
        let place = |counter: &Counter| {
            let at = recorded.iter().position(|known| known.as_ref() == Some(counter));
            at.ok_or_else(|| {
                let message = format!(
                    "`{counter}` was not recorded. There are: {}",
                    told.counters.join(", ")
                );
                SessionError::new(Reason::CounterNotFound, message)
            })
        };
        let places: Vec<usize> = request.counters.iter().map(place).collect::<Result<_, _>>()?;
        let names = request.counters.iter().map(ToString::to_string);
        Ok(Self {
            told: Told {
                counters: names.collect(),
                missing: BTreeMap::new(),
            },
            places,
            of: told.counters.clone(),
        })
    }

    fn counts(&self, counted: &[Counted]) -> Vec<Counted> {
        let nothing = Counted {
            count: None,
            share: 0.0,
        };
        let at = |place: &usize| counted.get(*place).copied().unwrap_or(nothing);
        self.places.iter().map(at).collect()
    }
}

/// The buckets that were taken so far.
struct Taken<'a> {
    request: &'a TimelineRequest,
    chosen: Option<Chosen>,
    buckets: VecDeque<RecordedBucket>,
    /// Counts in these.
    counts: usize,
    /// The one that is not as long yet as is asked for.
    open: Option<Open>,
    missed: u64,
    /// What had been lost when the first was recorded, and when the last was.
    recorded_lost: Option<(u64, u64)>,
    failed: Option<SessionError>,
}

impl Taken<'_> {
    /// Takes a bucket; whether to go on.
    fn take(&mut self, bucket: RecordedBucket, told: &Told, has_threads: bool) -> bool {
        let chosen = match &self.chosen {
            Some(chosen) if chosen.of == told.counters => chosen,
            // Another recording of other counters cannot be in the same file.
            Some(_) => return false,
            None => match Chosen::of(self.request, told, has_threads) {
                Ok(chosen) => self.chosen.insert(chosen),
                Err(error) => {
                    self.failed = Some(error);
                    return false;
                }
            },
        };
        let first_lost = self.recorded_lost.map_or(bucket.lost, |(first, _)| first);
        self.recorded_lost = Some((first_lost, bucket.lost));
        let threads = bucket.threads.into_iter().filter(|_| self.request.threads);
        let bucket = RecordedBucket {
            counted: chosen.counts(&bucket.counted),
            threads: threads
                .map(|thread| ThreadCounted {
                    counted: chosen.counts(&thread.counted),
                    ..thread
                })
                .collect(),
            ..bucket
        };
        let open = match self.open.take() {
            // Where one was lost between them, they are two.
            Some(mut open) if open.bucket.to_ns == bucket.from_ns => {
                open.join(bucket);
                open
            }
            Some(open) => {
                self.push(open.closed());
                Open::of(bucket)
            }
            None => Open::of(bucket),
        };
        // A bucket is read a little late, and the next one then is a little short.
        let length_ns = open.bucket.to_ns.saturating_sub(open.bucket.from_ns);
        if length_ns.saturating_add(self.request.step_ns / 10) >= self.request.step_ns {
            self.push(open.closed());
        } else {
            self.open = Some(open);
        }
        true
    }

    fn push(&mut self, bucket: RecordedBucket) {
        self.counts += counts(&bucket);
        self.buckets.push_back(bucket);
        while self.buckets.len() > MAX_BUCKETS || self.counts > MAX_COUNTS {
            let Some(oldest) = self.buckets.pop_front() else {
                break;
            };
            self.counts -= counts(&oldest);
            self.missed += 1;
        }
    }

    fn end(
        mut self,
        scope: &Arc<str>,
        ended: &Ending,
    ) -> Result<mpsc::Receiver<TimelineBucket>, SessionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Some(chosen) = self.chosen.take() else {
            return Err(refused(
                "the recording has no counters: record them with `profiler record --timeline`, or -e for others",
            ));
        };
        if let Some(open) = self.open.take() {
            self.push(open.closed());
        }
        if self.buckets.is_empty() {
            return Err(nothing());
        }
        let lost = self
            .recorded_lost
            .map_or(0, |(first, last)| last.saturating_sub(first));
        let (sender, receiver) = mpsc::channel(self.buckets.len() + 1);
        let mut told = Some(chosen.told);
        let last = self.buckets.len() - 1;
        for (number, bucket) in self.buckets.into_iter().enumerate() {
            let is_last = number == last;
            let bucket = TimelineBucket {
                seq: self.missed + number as u64,
                told: told.take(),
                scope: Arc::clone(scope),
                from_ns: bucket.from_ns,
                to_ns: bucket.to_ns,
                counted: bucket.counted,
                calls: bucket.calls,
                threads: bucket.threads,
                threads_left_out: bucket.threads_left_out,
                slow: self.missed + lost,
                cost: Cost::default(),
                ended: is_last.then(|| ended.clone()),
            };
            // There is room for all.
            let _ = sender.try_send(bucket);
        }
        Ok(receiver)
    }
}

/// Counts that a bucket holds.
fn counts(bucket: &RecordedBucket) -> usize {
    let of_threads = bucket.threads.iter().map(|thread| thread.counted.len());
    bucket.counted.len() + of_threads.sum::<usize>()
}

/// A bucket that others are added to.
struct Open {
    /// Without threads.
    bucket: RecordedBucket,
    threads: BTreeMap<u32, ThreadCounted>,
}

impl Open {
    fn of(mut bucket: RecordedBucket) -> Self {
        let threads = std::mem::take(&mut bucket.threads).into_iter();
        Self {
            bucket,
            threads: threads.map(|thread| (thread.tid, thread)).collect(),
        }
    }

    /// Adds the bucket behind it. Of threads that there is no room for, those of the bucket with the most are said to be left out.
    fn join(&mut self, then: RecordedBucket) {
        let first = &mut self.bucket;
        let lengths = [&*first, &then].map(|bucket| bucket.to_ns.saturating_sub(bucket.from_ns));
        let mut left_out = then.threads_left_out;
        for thread in then.threads {
            if let Some(before) = self.threads.get_mut(&thread.tid) {
                let counted = together(&before.counted, &thread.counted, lengths);
                *before = ThreadCounted { counted, ..thread };
            } else if self.threads.len() < MAX_THREADS {
                self.threads.insert(thread.tid, thread);
            } else {
                left_out = left_out.saturating_add(1);
            }
        }
        first.to_ns = then.to_ns;
        first.counted = together(&first.counted, &then.counted, lengths);
        first.calls = (first.calls.zip(then.calls)).map(|(first, then)| first.saturating_add(then));
        first.threads_left_out = first.threads_left_out.max(left_out);
        first.lost = then.lost;
    }

    /// The bucket, as it is shown.
    fn closed(self) -> RecordedBucket {
        RecordedBucket {
            threads: self.threads.into_values().collect(),
            ..self.bucket
        }
    }
}

/// What was counted in both; where one had no turn, it is not known.
fn together(first: &[Counted], then: &[Counted], lengths: [u64; 2]) -> Vec<Counted> {
    let [a, b] = lengths.map(|ns| ns.max(1) as f64);
    let both = first.iter().zip(then).map(|(first, then)| Counted {
        count: (first.count.zip(then.count)).map(|(first, then)| first.saturating_add(then)),
        share: (first.share * a + then.share * b) / (a + b),
    });
    both.collect()
}

fn refused(message: &str) -> SessionError {
    SessionError::new(Reason::ArgumentInvalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(from_ns: u64, count: Option<u64>, tid: u32) -> RecordedBucket {
        let counted = vec![Counted { count, share: 1.0 }];
        RecordedBucket {
            from_ns,
            to_ns: from_ns + 100,
            counted: counted.clone(),
            calls: Some(3),
            threads: vec![ThreadCounted {
                tid,
                name: "worker".into(),
                counted,
            }],
            threads_left_out: 0,
            lost: 0,
        }
    }

    fn joined(buckets: impl IntoIterator<Item = RecordedBucket>) -> RecordedBucket {
        let mut buckets = buckets.into_iter();
        let mut open = Open::of(buckets.next().unwrap());
        buckets.for_each(|bucket| open.join(bucket));
        open.closed()
    }

    #[test]
    fn joined_buckets_add_up_and_what_had_no_turn_stays_unknown() {
        let both = joined([bucket(0, Some(2), 7), bucket(100, Some(5), 7)]);
        assert_eq!((both.from_ns, both.to_ns, both.calls), (0, 200, Some(6)));
        assert_eq!(both.counted[0].count, Some(7));
        assert_eq!(
            (both.threads.len(), both.threads[0].counted[0].count),
            (1, Some(7))
        );
        let unknown = joined([both, bucket(200, None, 8)]);
        assert_eq!(unknown.counted[0].count, None);
        assert_eq!(unknown.threads.len(), 2);
    }

    #[test]
    fn threads_that_a_joined_bucket_has_no_room_for_are_said_to_be_left_out() {
        let all = u32::try_from(MAX_THREADS).unwrap() + 2;
        let each = (0..all).map(|tid| bucket(u64::from(tid) * 100, Some(1), tid));
        let joined = joined(each);
        assert_eq!((joined.threads.len(), joined.threads_left_out), (MAX_THREADS, 1));
        assert_eq!(joined.counted[0].count, Some(all.into()));
    }
}
