//! Programs of functions that do various things to their arguments.
//!
//! Each function is called [`ROUNDS`] times, by a function of its own, which first prints what it passes: a line of JSON with
//! the function's name and its arguments, as `profiler trace --json` would show them. Types of arguments differ, and so does what
//! is done to them: early branches, loops, calls, changes, addresses that are taken, and names that hide them.

use std::fmt::Write as _;

use profiler_testkit::Random;

/// Most arguments of a function: more than there are registers for.
pub const MAX_ARGUMENTS: usize = 10;

/// Calls of each function, most with other arguments: who reads them all right knows where they are. Of one call, a number
/// that is somewhere by chance may be the right one.
pub const ROUNDS: usize = 5;

/// What a type's text is made of; `$` stands for the argument.
pub struct Kind {
    /// The type.
    name: &'static str,
    /// A value of it: of `next()`, which is any number.
    made: &'static str,
    /// Prints it as JSON.
    told: &'static str,
    /// A number that depends on it.
    number: &'static str,
    /// A statement that changes it.
    changed: &'static str,
    /// Whether it is an integer, so that a loop may count it down.
    is_counter: bool,
    /// Whether it is passed in a vector register, or a part of it is.
    is_vector: bool,
}

/// A kind of number or address.
const fn plain(
    name: &'static str,
    made: &'static str,
    told: &'static str,
    number: &'static str,
    changed: &'static str,
) -> Kind {
    Kind {
        name,
        made,
        told,
        number,
        changed,
        is_counter: false,
        is_vector: false,
    }
}

/// A kind that is an integer.
const fn integer(
    name: &'static str,
    made: &'static str,
    told: &'static str,
    number: &'static str,
    changed: &'static str,
) -> Kind {
    Kind {
        is_counter: true,
        ..plain(name, made, told, number, changed)
    }
}

/// A kind with parts in vector registers.
const fn vector(
    name: &'static str,
    made: &'static str,
    told: &'static str,
    number: &'static str,
    changed: &'static str,
) -> Kind {
    Kind {
        is_vector: true,
        ..plain(name, made, told, number, changed)
    }
}

const C_KINDS: [Kind; 22] = [
    integer(
        "int8_t",
        "(int8_t)next()",
        r#"say("%d", $)"#,
        "(int64_t)$",
        "$ = (int8_t)($ * 3 + 1);",
    ),
    integer(
        "int16_t",
        "(int16_t)next()",
        r#"say("%d", $)"#,
        "(int64_t)$",
        "$ = (int16_t)($ - 7);",
    ),
    integer(
        "int32_t",
        "(int32_t)next()",
        r#"say("%d", $)"#,
        "(int64_t)$",
        "$ = $ / 2 + 5;",
    ),
    integer(
        "int64_t",
        "next()",
        r#"say("%ld", $)"#,
        "(int64_t)$",
        "$ = $ / 4 * 3;",
    ),
    integer(
        "uint8_t",
        "(uint8_t)next()",
        r#"say("%u", $)"#,
        "(int64_t)$",
        "$ = (uint8_t)($ << 1);",
    ),
    integer(
        "uint16_t",
        "(uint16_t)next()",
        r#"say("%u", $)"#,
        "(int64_t)$",
        "$ = (uint16_t)($ * 5);",
    ),
    integer(
        "uint32_t",
        "(uint32_t)next()",
        r#"say("%u", $)"#,
        "(int64_t)$",
        "$ = $ * 2 + 1;",
    ),
    integer(
        "uint64_t",
        "(uint64_t)next()",
        r#"say("%lu", $)"#,
        "(int64_t)$",
        "$ = $ >> 1;",
    ),
    plain(
        "bool",
        "(next() & 1) != 0",
        r#"say($ ? "true" : "false")"#,
        "(int64_t)$",
        "$ = !$;",
    ),
    plain(
        "char",
        "(char)('a' + (next() & 15))",
        r#"say("%d", $)"#,
        "(int64_t)$",
        "$ = (char)($ + 1);",
    ),
    plain(
        "enum color",
        "colors[next() & 3]",
        r#"say("\"%s\"", name_of($))"#,
        "(int64_t)$",
        "$ = BLUE;",
    ),
    plain(
        "enum mode",
        "(enum mode)(next() & 1)",
        r#"say($ == SLOW ? "\"SLOW\"" : "\"FAST\"")"#,
        "(int64_t)$",
        "$ = SLOW;",
    ),
    plain(
        "int *",
        "(next() & 3) ? &ints[next() & 7] : 0",
        r#"say("\"0x%lx\"", (long)$)"#,
        "(int64_t)($ ? *$ : 3)",
        "$ = $ ? $ + 1 : ints;",
    ),
    plain(
        "const char *",
        "texts[next() & 3]",
        r#"say($ ? "\"%s\"" : "\"0x0\"", $)"#,
        "(int64_t)($ ? $[0] : 1)",
        "if ($) while (*$) sum += *$++;",
    ),
    plain(
        "const struct node *",
        "&nodes[next() & 3]",
        r#"say("\"0x%lx\"", (long)$)"#,
        "$->key",
        "do { sum += $->key; $ = $->next ? $->next : $; } while ($->next);",
    ),
    plain(
        "struct tiny",
        "(struct tiny){(char)(next() & 63), (next() & 1) != 0}",
        r#"say("{\"c\": %d, \"is\": %s}", $.c, $.is ? "true" : "false")"#,
        "(int64_t)$.c",
        "$.c++;",
    ),
    plain(
        "struct small",
        "(struct small){(int)next(), (short)next()}",
        r#"say("{\"x\": %d, \"y\": %d}", $.x, $.y)"#,
        "(int64_t)$.x",
        "$.x = $.y;",
    ),
    plain(
        "struct pair",
        "(struct pair){next(), (int)next()}",
        r#"say("{\"first\": %ld, \"second\": %d}", $.first, $.second)"#,
        "($.first + $.second)",
        "$.first = $.second * 2;",
    ),
    plain(
        "struct large",
        "(struct large){{next(), 2, next()}, (int)next()}",
        r#"say("{\"v\": [%ld, %ld, %ld], \"n\": %d}", $.v[0], $.v[1], $.v[2], $.n)"#,
        "($.v[2] + $.n)",
        "$.v[2] = $.n + 1;",
    ),
    vector(
        "float",
        "(float)(next() & 4095) / 8",
        r#"say("%.9g", (double)$)"#,
        "(int64_t)$",
        "$ = $ * 2 + 1;",
    ),
    vector(
        "double",
        "(double)(next() & 65535) / 16",
        r#"say("%.17g", $)"#,
        "(int64_t)$",
        "$ = $ / 2 - 1;",
    ),
    vector(
        "struct mixed",
        "(struct mixed){(double)(next() & 255) / 4, (int)next()}",
        r#"say("{\"d\": %.17g, \"n\": %d}", $.d, $.n)"#,
        "((int64_t)$.d + $.n)",
        "$.d = $.n;",
    ),
];

const C_PRELUDE: &str = r#"#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#define say printf
#define NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define OPAQUE NOINLINE
#else
#define OPAQUE __attribute__((noinline, noipa))
#endif
enum color { BLUE = -3, RED = 0, GREEN = 5 };
enum mode { FAST, SLOW };
struct node { const struct node *next; int64_t key; };
struct tiny { char c; bool is; };
struct small { int x; short y; };
struct pair { int64_t first; int second; };
struct large { int64_t v[3]; int n; };
struct mixed { double d; int n; };
static const enum color colors[] = {RED, GREEN, BLUE, RED};
static int ints[10] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
static const char *const texts[] = {"alpha", "", 0, "a longer text with several words in it"};
static const struct node nodes[] = {{&nodes[1], 11}, {&nodes[2], -12}, {&nodes[3], 13}, {0, 14}};
volatile int64_t sink;
static volatile uint64_t state = 88172645463325252u;
OPAQUE int64_t next(void) {
    uint64_t s = state;
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return (int64_t)(state = s);
}
static const char *name_of(enum color of) { return of == RED ? "RED" : of == GREEN ? "GREEN" : "BLUE"; }
OPAQUE int64_t helper(int64_t n) { return sink += n; }
#define escape(address) __asm__ volatile("" : : "r"(address) : "memory")
static inline __attribute__((always_inline)) int64_t inlined(int64_t a1, int64_t a0) {
    a0 = a0 * 2 + a1;
    if (a0 > 1000) sink += a1;
    return a0 - a1;
}
"#;

const RUST_KINDS: [Kind; 21] = [
    integer(
        "i8",
        "next() as i8",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $.wrapping_mul(3);",
    ),
    integer(
        "i16",
        "next() as i16",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $.wrapping_sub(7);",
    ),
    integer(
        "i32",
        "next() as i32",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $ / 2 + 5;",
    ),
    integer(
        "i64",
        "next()",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $ / 4 * 3;",
    ),
    integer(
        "u8",
        "next() as u8",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $ << 1;",
    ),
    integer(
        "u16",
        "next() as u16",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $.wrapping_mul(5);",
    ),
    integer(
        "u32",
        "next() as u32",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $.wrapping_mul(2);",
    ),
    integer(
        "u64",
        "next() as u64",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $ >> 1;",
    ),
    integer(
        "usize",
        "next() as usize",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $ >> 3;",
    ),
    plain(
        "bool",
        "next() & 1 != 0",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = !$;",
    ),
    plain(
        "char",
        "char::from(97 + (next() & 15) as u8)",
        r#"print!("{:?}", $.to_string())"#,
        "($ as i64)",
        "$ = 'x';",
    ),
    plain(
        "Color",
        "[Color::Red, Color::Green, Color::Blue][(next() & 1) as usize]",
        r#"print!("\"{:?}\"", $)"#,
        "($ as i64)",
        "$ = Color::Blue;",
    ),
    plain(
        "*const i32",
        "&raw const INTS[(next() & 7) as usize]",
        r#"print!("\"{:#x}\"", $ as usize)"#,
        "($ as usize as i64 & 15)",
        "$ = $.wrapping_add(1);",
    ),
    plain(
        "&'static str",
        r#"["alpha", "", "a longer text"][(next() & 1) as usize]"#,
        r#"print!("{:?}", $)"#,
        "($.len() as i64)",
        "$ = &$[$.len() / 2..];",
    ),
    plain(
        "&'static [i32]",
        "&INTS[..(next() & 7) as usize]",
        r#"print!("{:?}", $)"#,
        "($.len() as i64)",
        "while let Some((first, rest)) = $.split_first() { sum = sum.wrapping_add(i64::from(*first)); $ = rest; }",
    ),
    plain(
        "Small",
        "Small { x: next() as i32, y: next() as i16 }",
        r#"print!("{{\"x\": {}, \"y\": {}}}", $.x, $.y)"#,
        "i64::from($.x)",
        "$.x = i32::from($.y);",
    ),
    plain(
        "Pair",
        "Pair { first: next(), second: next() as i32 }",
        r#"print!("{{\"first\": {}, \"second\": {}}}", $.first, $.second)"#,
        "($.first / 2 + i64::from($.second))",
        "$.first = 4;",
    ),
    plain(
        "Large",
        "Large { v: [next(), 2, next()], n: next() as i32 }",
        r#"print!("{{\"v\": {:?}, \"n\": {}}}", $.v, $.n)"#,
        "($.v[2] / 2 + i64::from($.n))",
        "$.v[2] = 5;",
    ),
    vector(
        "f32",
        "(next() & 4095) as f32 / 8.0",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $ * 2.0;",
    ),
    vector(
        "f64",
        "(next() & 65535) as f64 / 16.0",
        r#"print!("{}", $)"#,
        "($ as i64)",
        "$ = $ / 2.0 - 1.0;",
    ),
    vector(
        "Mixed",
        "Mixed { d: (next() & 255) as f64 / 4.0, n: next() as i32 }",
        r#"print!("{{\"d\": {}, \"n\": {}}}", $.d, $.n)"#,
        "($.d as i64 + i64::from($.n))",
        "$.d = 2.0;",
    ),
];

const RUST_PRELUDE: &str = r"#![allow(unused, clippy::all)]
use std::{hint::black_box, sync::atomic::{AtomicI64, Ordering::Relaxed}};
#[derive(Clone, Copy, Debug)]
enum Color { Red = 1, Green = 5, Blue = 9 }
#[derive(Clone, Copy)]
struct Small { x: i32, y: i16 }
#[derive(Clone, Copy)]
struct Pair { first: i64, second: i32 }
#[derive(Clone, Copy)]
struct Large { v: [i64; 3], n: i32 }
#[derive(Clone, Copy)]
struct Mixed { d: f64, n: i32 }
static INTS: [i32; 10] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];
static SINK: AtomicI64 = AtomicI64::new(0);
static STATE: AtomicI64 = AtomicI64::new(88172645463325252);
#[inline(never)]
fn next() -> i64 {
    let mut s = STATE.load(Relaxed) as u64;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    STATE.store(s as i64, Relaxed);
    black_box(s as i64)
}
#[inline(never)]
fn helper(n: i64) -> i64 { SINK.fetch_add(n, Relaxed) }
#[inline(always)]
fn inlined(a1: i64, mut a0: i64) -> i64 {
    a0 = a0.wrapping_mul(2).wrapping_add(a1);
    if a0 > 1000 { SINK.fetch_add(a1, Relaxed); }
    a0.wrapping_sub(a1)
}
";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    C,
    Rust,
}

/// A program's text, and what there is in it.
pub struct Generated {
    pub text: String,
    /// Of each function, by its number, whether its arguments are in vector registers.
    pub functions: Vec<Vec<bool>>,
}

/// A function under construction.
struct Function<'r> {
    random: &'r mut Random,
    kinds: Vec<&'static Kind>,
}

impl Function<'_> {
    /// A number that depends on one of the arguments.
    fn number(&mut self) -> String {
        let at = self.random.below(self.kinds.len());
        filled(self.kinds[at].number, at)
    }

    /// The number of an argument that a loop may count down.
    fn counter(&mut self) -> Option<usize> {
        let kinds = self.kinds.iter().enumerate();
        let counters: Vec<usize> = kinds
            .filter(|(_, kind)| kind.is_counter)
            .map(|(at, _)| at)
            .collect();
        (!counters.is_empty()).then(|| *self.random.of(&counters))
    }

    /// A statement, of those that both languages write alike but for a few marks.
    fn c_statement(&mut self, serial: usize) -> String {
        let (any, n, v) = (self.random.below(self.kinds.len()), self.number(), self.number());
        match self.random.below(13) {
            0..=2 => filled(self.kinds[any].changed, any),
            3 => format!("sum += {n};"),
            4 => format!("if ({n} > {v}) {{ sum += helper({n}); goto done; }}"),
            5 => format!("for (int64_t i = {n} & 7; i > 0; i--) sum += i ^ {v};"),
            6 => match self.counter() {
                Some(at) => format!("while (a{at} & 7) {{ sum += helper(sum); a{at}--; }}"),
                None => String::new(),
            },
            7 => format!("sum += helper({n}) - helper({v});"),
            8 => format!("escape(&a{any});"),
            9 => format!(
                "switch ({n} & 7) {{ case 0: sum += 3; break; case 1: sum ^= {v}; break; case 2: sum = helper(9); break; case 5: sum -= 4; break; case 6: sum *= 5; }}"
            ),
            10 => format!("char buffer{serial}[({n} & 31) + 1]; escape(buffer{serial});"),
            11 => format!("_Alignas(64) int64_t aligned{serial} = {n}; escape(&aligned{serial});"),
            _ if self.random.percent(50) => format!("sum += inlined({n}, {v});"),
            _ => format!("{{ int64_t a{any} = sum * 3; sum += helper(a{any}); }}"),
        }
    }

    fn rust_statement(&mut self) -> String {
        let (any, n, v) = (self.random.below(self.kinds.len()), self.number(), self.number());
        match self.random.below(11) {
            0..=2 => filled(self.kinds[any].changed, any),
            3 => format!("sum = sum.wrapping_add({n});"),
            4 => format!("if {n} > {v} {{ return helper({n}); }}"),
            5 => format!("for i in 0..({n} & 7) {{ sum = sum.wrapping_add(i ^ {v}); }}"),
            6 => match self.counter() {
                Some(at) => {
                    format!("while a{at} & 7 != 0 {{ sum ^= helper(sum); a{at} = a{at}.wrapping_sub(1); }}")
                }
                None => String::new(),
            },
            7 => format!("sum = sum.wrapping_add(helper({n}) ^ helper({v}));"),
            8 => format!("black_box(&mut a{any});"),
            9 => format!("sum ^= inlined({n}, {v});"),
            _ => format!("{{ let a{any} = {n} ^ 3; sum ^= helper(a{any}); }}"),
        }
    }
}

/// A text of a kind, of an argument.
fn filled(text: &str, argument: usize) -> String {
    text.replace('$', &format!("a{argument}"))
}

/// A value of a kind; of some, always the same.
fn made(kind: &Kind, random: &mut Random) -> String {
    if random.percent(15) {
        let constant = random.below(100).to_string();
        return kind.made.replace("next()", &constant);
    }
    kind.made.to_owned()
}

/// A program of so many functions.
pub fn program(language: Language, functions: usize, seed: u64) -> Generated {
    let mut random = Random::from_seed(seed);
    let mut generated = Generated {
        text: match language {
            Language::C => C_PRELUDE,
            Language::Rust => RUST_PRELUDE,
        }
        .to_owned(),
        functions: Vec::new(),
    };
    for number in 0..functions {
        let all: &'static [Kind] = match language {
            Language::C => &C_KINDS,
            Language::Rust => &RUST_KINDS,
        };
        let count = 1 + random.below(MAX_ARGUMENTS);
        let kinds: Vec<&'static Kind> = (0..count).map(|_| random.of(all)).collect();
        generated
            .functions
            .push(kinds.iter().map(|kind| kind.is_vector).collect());
        let function = Function {
            random: &mut random,
            kinds,
        };
        match language {
            Language::C => c_function(&mut generated.text, function, number),
            Language::Rust => rust_function(&mut generated.text, function, number),
        }
    }
    let text = &mut generated.text;
    let calls = (0..functions).fold(String::new(), |mut calls, number| {
        let _ = writeln!(calls, "    call_{number}();");
        calls
    });
    let _ = match language {
        Language::C => write!(
            text,
            "int main(void) {{\n    say(\"ready\\n\");\n    fflush(stdout);\n    for (int c = 0; c != EOF && c != 10;) c = getchar();\n    for (int round = 0; round < {ROUNDS}; round++) {{\n{calls}    }}\n    return 0;\n}}\n"
        ),
        Language::Rust => write!(
            text,
            "fn main() {{\n    println!(\"ready\");\n    std::io::stdin().read_line(&mut String::new());\n    for _ in 0..{ROUNDS} {{\n{calls}    }}\n}}\n"
        ),
    };
    generated
}

fn c_function(text: &mut String, mut function: Function<'_>, number: usize) {
    let count = function.kinds.len();
    let parameters: Vec<String> = function
        .kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| format!("{} a{at}", kind.name))
        .collect();
    let last = function.kinds[count - 1].name;
    // Of these types a variadic function's last argument may be.
    let may_be_variadic = ["int32_t", "int64_t", "int *", "struct pair", "struct large"].contains(&last);
    let is_variadic = may_be_variadic && function.random.percent(40);
    let rest = if is_variadic { ", ..." } else { "" };
    let returned = *function
        .random
        .of(&["int64_t", "int64_t", "int64_t", "struct large", "struct pair"]);
    let linkage = *function.random.of(&["static NOINLINE", "NOINLINE", "OPAQUE"]);
    let _ = writeln!(
        text,
        "{linkage} {returned} probed_{number}({}{rest}) {{",
        parameters.join(", ")
    );
    text.push_str("    int64_t sum = 1;\n");
    if is_variadic {
        let _ = write!(
            text,
            "    va_list rest;\n    va_start(rest, a{});\n    sum += va_arg(rest, int64_t);\n    va_end(rest);\n",
            count - 1
        );
    }
    for statement in 0..=function.random.below(5) {
        let _ = writeln!(text, "    {}", function.c_statement(statement));
    }
    let result = match returned {
        "int64_t" => "sum".to_owned(),
        "struct pair" => format!("(struct pair){{sum, (int){}}}", function.number()),
        _ => format!("(struct large){{{{sum, {}, 1}}, 2}}", function.number()),
    };
    // A jump must not lead past a declaration of an array.
    let body = text.rfind("int64_t sum = 1;\n").unwrap();
    if text[body..].contains("goto done") {
        if text[body..].contains("buffer") || is_variadic {
            let replaced = text[body..].replace("goto done;", &format!("return {result};"));
            text.truncate(body);
            text.push_str(&replaced);
        } else {
            text.push_str("done:\n");
        }
    }
    let _ = write!(text, "    return {result};\n}}\n");
    let _ = writeln!(text, "OPAQUE void call_{number}(void) {{");
    for (at, kind) in function.kinds.iter().enumerate() {
        let _ = writeln!(text, "    {} a{at} = {};", kind.name, made(kind, function.random));
    }
    let _ = writeln!(text, "    say(\"{{\\\"function\\\": {number}\");");
    for (at, kind) in function.kinds.iter().enumerate() {
        let _ = write!(
            text,
            "    say(\", \\\"a{at}\\\": \");\n    {};\n",
            filled(kind.told, at)
        );
    }
    text.push_str("    say(\"}\\n\");\n");
    let mut passed: Vec<String> = (0..count).map(|at| format!("a{at}")).collect();
    if is_variadic {
        passed.push("next()".into());
    }
    let call = format!("probed_{number}({})", passed.join(", "));
    let part = match returned {
        "int64_t" => "",
        "struct pair" => ".first",
        _ => ".v[1]",
    };
    let _ = write!(text, "    sink += {call}{part};\n}}\n");
}

fn rust_function(text: &mut String, mut function: Function<'_>, number: usize) {
    let count = function.kinds.len();
    let parameters: Vec<String> = function
        .kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| format!("mut a{at}: {}", kind.name))
        .collect();
    let linkage = *function.random.of(&["", "pub "]);
    let _ = write!(
        text,
        "#[inline(never)]\n{linkage}fn probed_{number}({}) -> i64 {{\n    let mut sum = 1_i64;\n",
        parameters.join(", ")
    );
    for _ in 0..=function.random.below(5) {
        let _ = writeln!(text, "    {}", function.rust_statement());
    }
    text.push_str("    sum\n}\n");
    let _ = write!(text, "#[inline(never)]\nfn call_{number}() {{\n");
    for (at, kind) in function.kinds.iter().enumerate() {
        let _ = writeln!(
            text,
            "    let a{at}: {} = {};",
            kind.name,
            made(kind, function.random)
        );
    }
    let _ = writeln!(text, "    print!(\"{{{{\\\"function\\\": {number}\");");
    for (at, kind) in function.kinds.iter().enumerate() {
        let _ = write!(
            text,
            "    print!(\", \\\"a{at}\\\": \");\n    {};\n",
            filled(kind.told, at)
        );
    }
    let passed: Vec<String> = (0..count).map(|at| format!("a{at}")).collect();
    let _ = write!(
        text,
        "    println!(\"}}}}\");\n    black_box(helper(probed_{number}({})));\n}}\n",
        passed.join(", ")
    );
}
