//! The messages of `perfetto.protos`, as far as they are written here.

use prost::Message;

/// `Trace`.
#[derive(Clone, PartialEq, Message)]
pub struct TraceMessage {
    /// All there is.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// What clocks showed at one moment.
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    /// When it was, in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// `trusted_packet_sequence_id`: the writer.
    #[prost(uint32, tag = "10")]
    pub sequence: u32,
    /// What happened.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// Names by number, from this packet on.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// Whether names of earlier packets are forgotten (1) or needed (2).
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// The clock of the timestamp.
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock_id: Option<u32>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// `ClockSnapshot`.
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    /// Each once.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    /// That which readers show.
    #[prost(int32, tag = "2")]
    pub primary_trace_clock: i32,
}

/// `ClockSnapshot.Clock`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Clock {
    /// `BuiltinClock`.
    #[prost(uint32, tag = "1")]
    pub clock_id: u32,
    /// What it showed, in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub timestamp: u64,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    /// Its name, where it is neither a process nor a thread.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The process that it is.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// The thread that it is.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track that it is shown below.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// The counter that it is.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Its number.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Its name.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// `ThreadDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// The number of its process.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Its number.
    #[prost(int64, tag = "2")]
    pub tid: i64,
    /// Its name.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// `CounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// What values are numbers of.
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Arguments.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// `TrackEvent.Type`.
    #[prost(int32, tag = "9")]
    pub r#type: i32,
    /// Its name, by number.
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    /// Its track.
    #[prost(uint64, tag = "11")]
    pub track_uuid: u64,
    /// What it is.
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    /// Its name, as text.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// A counter's value.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
    /// Flows that lead on from it.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    /// Flows that end in it.
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
}

/// `DebugAnnotation`; one of the values is there.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// Its name, by number.
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    /// A value.
    #[prost(bool, optional, tag = "2")]
    pub bool_value: Option<bool>,
    /// A value.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// A value.
    #[prost(int64, optional, tag = "4")]
    pub int_value: Option<i64>,
    /// A value.
    #[prost(double, optional, tag = "5")]
    pub double_value: Option<f64>,
    /// A value.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// Its name, as text.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
    /// A value, by number.
    #[prost(uint64, optional, tag = "17")]
    pub string_value_iid: Option<u64>,
    /// Values by name.
    #[prost(message, repeated, tag = "11")]
    pub dict_entries: Vec<DebugAnnotation>,
    /// Values in order.
    #[prost(message, repeated, tag = "12")]
    pub array_values: Vec<DebugAnnotation>,
}

/// `InternedData`.
#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    /// Of events.
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<InternedName>,
    /// Of arguments.
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<InternedName>,
    /// Values of arguments.
    #[prost(message, repeated, tag = "29")]
    pub debug_annotation_string_values: Vec<InternedName>,
}

/// `EventName`, `DebugAnnotationName` and `InternedString`.
#[derive(Clone, PartialEq, Message)]
pub struct InternedName {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    /// The text.
    #[prost(string, tag = "2")]
    pub name: String,
}
