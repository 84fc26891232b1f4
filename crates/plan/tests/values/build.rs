//! The programs, and how they are compiled.

use std::{path::Path, process::Command};

pub struct Program {
    compiler: &'static str,
    pub source: &'static str,
    level: char,
    link_time: bool,
    position_independent: bool,
    /// Another version of the debug information, or another form.
    form: &'static str,
}

/// Every language at every level, with and without link-time optimization and position-independent.
pub fn matrix() -> Vec<Program> {
    let mut programs = Vec::new();
    for level in ['0', '1', '2', '3'] {
        for (compiler, source) in [("gcc", "values.c"), ("g++", "values.cc"), ("rustc", "values.rs")] {
            for link_time in [false, true] {
                for position_independent in [false, true] {
                    // Rust's link-time optimization takes in its whole library, for seconds each time: twice.
                    let whole_library = compiler == "rustc" && link_time;
                    if whole_library && ![('1', false), ('3', true)].contains(&(level, position_independent))
                    {
                        continue;
                    }
                    programs.push(Program {
                        compiler,
                        source,
                        level,
                        link_time,
                        position_independent,
                        form: "",
                    });
                }
            }
        }
        for (compiler, source) in [
            ("clang-14", "values.c"),
            ("clang++-14", "values.cc"),
            ("g++", "coroutines.cc"),
            ("rustc", "asynchronous.rs"),
        ] {
            programs.push(Program {
                compiler,
                source,
                level,
                link_time: false,
                position_independent: true,
                form: "",
            });
        }
    }
    for (compiler, source, form) in [
        ("gcc", "values.c", "-gdwarf-2"),
        ("gcc", "values.c", "-gdwarf-3"),
        ("gcc", "values.c", "-gdwarf-4"),
        ("clang-14", "values.c", "-gdwarf-4"),
        ("g++", "values.cc", "-gdwarf-4"),
        ("g++", "values.cc", "-gz"),
    ] {
        programs.push(Program {
            compiler,
            source,
            level: '2',
            link_time: false,
            position_independent: true,
            form,
        });
    }
    programs
}

impl Program {
    pub fn name(&self) -> String {
        format!(
            "{} {} -O{}{}{} {}",
            self.compiler,
            self.source,
            self.level,
            if self.link_time { " lto" } else { "" },
            if self.position_independent { " pie" } else { "" },
            self.form
        )
    }

    pub fn is_optimized(&self) -> bool {
        self.level != '0'
    }

    /// How long it takes, roughly.
    pub fn weight(&self) -> u32 {
        let language = match self.compiler {
            "rustc" if self.link_time => 20,
            "rustc" | "g++" | "clang++-14" => 3,
            _ => 1,
        };
        language + u32::from(self.link_time)
    }

    pub fn compile(&self, to: &Path) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/values")
            .join(self.source);
        let mut command = Command::new(self.compiler);
        if self.compiler == "rustc" {
            command.args(["--edition=2021", "-g"]);
            command.arg(format!("-Copt-level={}", self.level));
            if self.link_time {
                command.arg("-Clto=fat");
            }
            if !self.position_independent {
                command.arg("-Crelocation-model=static");
            }
        } else {
            command.args(["-g", &format!("-O{}", self.level)]);
            match self.source {
                "values.cc" => drop(command.arg("-std=c++17")),
                "coroutines.cc" => drop(command.arg("-std=c++20")),
                _ => {}
            }
            if self.link_time {
                command.arg("-flto=1");
            }
            if !self.form.is_empty() {
                command.arg(self.form);
            }
            let position = if self.position_independent {
                ["-fPIE", "-pie"]
            } else {
                ["-fno-PIE", "-no-pie"]
            };
            command.args(position);
        }
        let output = command.arg("-o").arg(to).arg(source).output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Variables outside of functions, as both write them.
    pub fn globals(&self) -> &'static [&'static str] {
        match self.source {
            "values.c" => &[
                "total",
                "counter",
                "origin",
                "origin.y",
                "names[2]",
                "table[1]",
                "depth_now",
                "local_origin",
            ],
            "values.cc" => &[
                "::id_",
                "::created",
                "shop::opened",
                "shop::Base::created",
                "shop::visits",
            ],
            "values.rs" => &["values::HITS", "values::LIMITS"],
            _ => &[],
        }
    }
}
