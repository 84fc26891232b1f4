//! The record beside the committed object: from which sources and by which tools it was made.

use std::{fs, path::Path};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::sources::hex;
use crate::error::{Error, Result};

/// The tools that made an object; the same tools make the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// `rustc --version`
    pub rustc: String,
    /// `bpf-linker --version`
    pub bpf_linker: String,
    /// Version of the LLVM that rustc writes bitcode with.
    pub llvm: String,
    /// Compiler flags, with placeholders for this machine's directories.
    pub flags: Vec<String>,
}

/// What `record.json` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    sources_sha256: String,
    object_sha256: String,
    /// The tools that made the object.
    pub tools: Tools,
}

impl Tools {
    /// In which tool these and `other` differ, in words; `None` if in none.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let Self {
            rustc,
            bpf_linker,
            llvm,
            flags,
        } = self;
        let pairs = [
            ("rustc", rustc.clone(), other.rustc.clone()),
            ("bpf-linker", bpf_linker.clone(), other.bpf_linker.clone()),
            ("LLVM", llvm.clone(), other.llvm.clone()),
            ("flags", flags.join(" "), other.flags.join(" ")),
        ];
        let (name, recorded, here) = pairs.into_iter().find(|(_, recorded, here)| recorded != here)?;
        Some(format!("it was made by {name} `{recorded}`, here it is `{here}`"))
    }
}

impl Record {
    /// A record of an object just built.
    pub fn new(sources_sha256: String, object: &[u8], tools: Tools) -> Self {
        Self {
            sources_sha256,
            object_sha256: hex(&Sha256::digest(object)),
            tools,
        }
    }

    /// Fails unless `object` is the recorded one and `sources_sha256` that of the sources it was made from.
    pub fn check(&self, sources_sha256: &str, object: &[u8]) -> Result<()> {
        if self.sources_sha256 != sources_sha256 {
            return Err(Error::told(format!(
                "the committed eBPF object is stale: made from sources with SHA-256 {}, now they have {sources_sha256}; \
                 run `cargo xtask ebpf` and commit the object with its record",
                self.sources_sha256
            )));
        }
        let found = hex(&Sha256::digest(object));
        if self.object_sha256 != found {
            return Err(Error::told(format!(
                "the committed eBPF object is not the recorded one: SHA-256 {found}, recorded {}; run `cargo xtask ebpf`",
                self.object_sha256
            )));
        }
        Ok(())
    }

    /// Reads a record file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        Self::parse(&text).map_err(|what| {
            Error::told(format!(
                "{} is not a record of an object: {what}; run `cargo xtask ebpf`",
                path.display()
            ))
        })
    }

    /// Writes a record file.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.to_text()).map_err(Error::file("write", path))
    }

    fn to_text(&self) -> String {
        let Self {
            sources_sha256,
            object_sha256,
            tools:
                Tools {
                    rustc,
                    bpf_linker,
                    llvm,
                    flags,
                },
        } = self;
        let value = json!({
            "sources_sha256": sources_sha256,
            "object_sha256": object_sha256,
            "rustc": rustc,
            "bpf_linker": bpf_linker,
            "llvm": llvm,
            "flags": flags,
        });
        format!("{value:#}\n")
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let field = |name: &str| {
            value[name]
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| format!("`{name}` is missing or not a string"))
        };
        let flags = value["flags"]
            .as_array()
            .ok_or("`flags` is missing or not a list")?;
        Ok(Self {
            sources_sha256: field("sources_sha256")?,
            object_sha256: field("object_sha256")?,
            tools: Tools {
                rustc: field("rustc")?,
                bpf_linker: field("bpf_linker")?,
                llvm: field("llvm")?,
                flags: flags
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let tools = Tools {
            rustc: "rustc 1.96.0".to_owned(),
            bpf_linker: "bpf-linker 0.13.0".to_owned(),
            llvm: "22.1".to_owned(),
            flags: vec!["-Cdebuginfo=2".to_owned()],
        };
        Record::new("5eed".to_owned(), b"object", tools)
    }

    #[test]
    fn a_record_reads_back() {
        assert_eq!(Record::parse(&record().to_text()).unwrap(), record());
    }

    #[test]
    fn stale_sources_and_another_object_are_found() {
        record().check("5eed", b"object").unwrap();
        assert!(
            record()
                .check("beef", b"object")
                .unwrap_err()
                .to_string()
                .contains("stale")
        );
        assert!(
            record()
                .check("5eed", b"objecT")
                .unwrap_err()
                .to_string()
                .contains("not the recorded one")
        );
    }

    #[test]
    fn a_different_tool_is_named() {
        let mut other = record().tools;
        assert_eq!(record().tools.difference(&other), None);
        other.llvm = "23.0".to_owned();
        assert_eq!(
            record().tools.difference(&other).unwrap(),
            "it was made by LLVM `22.1`, here it is `23.0`"
        );
    }

    #[test]
    fn a_broken_record_says_what_is_wrong() {
        assert!(Record::parse("{").is_err());
        assert_eq!(
            Record::parse(r#"{"flags": []}"#).unwrap_err(),
            "`sources_sha256` is missing or not a string"
        );
    }
}
