//! A finding in the words of a scope, and the scope that selects the calls with it.

use profiler_aggregate::explain::Statement;
use profiler_common::{limits::MAX_JOINED, values};
use profiler_scope::{
    Bound, Comparison, Condition, Constant, MAX_STEPS, Name, Place, Predicate, Scope, Step,
};

use super::{Constants, What};

/// A finding in words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Said {
    /// What is true of a call.
    pub text: String,
    /// The scope that looks only at such calls; `None` where no scope says it.
    pub next: Option<String>,
}

/// What is said of a feature.
pub fn of(what: &What, statement: Statement, scope: &Scope) -> Said {
    match what {
        What::Value(expression, constants) => {
            let (comparison, constant) = match statement {
                Statement::Above(bound) => (values::Comparison::Greater, number(bound)),
                Statement::AtMost(bound) => (values::Comparison::LessOrEqual, number(bound)),
                Statement::Is(one) => is(one, constants),
                Statement::Happened => {
                    return Said {
                        text: expression.to_string(),
                        next: None,
                    };
                }
            };
            let condition = Condition {
                expression: expression.clone(),
                comparison,
                constant,
            };
            let bracketed = condition.to_string();
            let text = bracketed
                .strip_prefix('[')
                .and_then(|text| text.strip_suffix(']'));
            let text = text.unwrap_or(&bracketed).to_owned();
            let mut next = scope.clone();
            if let Some(last) = next.steps.last_mut() {
                last.conditions.push(condition);
            }
            Said {
                text,
                next: Some(next.to_string()),
            }
        }
        What::Many(place) => {
            let step = Step {
                place: place.clone(),
                predicates: Vec::new(),
                conditions: Vec::new(),
            };
            let mut next = scope.clone();
            next.steps.push(step);
            let is_scope = next.steps.len() <= MAX_STEPS;
            Said {
                text: format!("more than {} calls, most of them {place}", MAX_JOINED - 1),
                next: is_scope.then(|| next.to_string()),
            }
        }
        // It says who ended it too: see `waits`. Frames have names: see `of_frame`.
        What::Wait(_) | What::Frame(_) => Said::default(),
        What::Place(place) => {
            let mut step = Step {
                place: place.clone(),
                predicates: Vec::new(),
                conditions: Vec::new(),
            };
            let mut is_step = true;
            match statement {
                Statement::Above(bound) if bound > 0.0 => {
                    step.predicates.push(duration(Comparison::Greater, bound));
                }
                Statement::AtMost(0.0) => {
                    return Said {
                        text: format!("no {}", Scope { steps: vec![step] }),
                        next: None,
                    };
                }
                Statement::AtMost(bound) => {
                    // Calls in which it was never called are among these.
                    step.predicates.push(duration(Comparison::LessOrEqual, bound));
                    is_step = false;
                }
                _ => {}
            }
            let mut next = scope.clone();
            next.steps.push(step.clone());
            let is_step = is_step && next.steps.len() <= MAX_STEPS;
            let text = Scope { steps: vec![step] }.to_string();
            Said {
                text,
                next: is_step.then(|| next.to_string()),
            }
        }
    }
}

/// What is said of samples in a function of this name; it leads to a scope, if a step can be made of it.
pub fn of_frame(name: &str, function: Option<&str>, scope: &Scope) -> Said {
    let next = function.map(|function| {
        let mut next = scope.clone();
        next.steps.push(Step {
            place: Place::Function(Name::Exact(function.to_owned())),
            predicates: Vec::new(),
            conditions: Vec::new(),
        });
        next
    });
    let next = next.filter(|next| next.steps.len() <= MAX_STEPS);
    Said {
        text: format!("samples in {name}"),
        next: next.map(|next| next.to_string()),
    }
}

/// A condition on a time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a duration, rounded to a whole number"
)]
pub(super) fn duration(comparison: Comparison, bound_ns: f64) -> Predicate {
    Predicate {
        comparison,
        bound: Bound::Duration(bound_ns.max(0.0).round() as u64),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a whole number")]
fn number(number: f64) -> Constant {
    if number.fract() == 0.0 {
        Constant::Integer(number as i128)
    } else {
        Constant::Decimal(number.to_string())
    }
}

/// That a value is this one.
fn is(one: f64, constants: &Constants) -> (values::Comparison, Constant) {
    let constant = match constants {
        Constants::Numbers => number(one),
        Constants::Booleans => Constant::Boolean(one != 0.0),
        // Null or not is all that was noted.
        Constants::Pointers if one != 0.0 => return (values::Comparison::NotEqual, Constant::Integer(0)),
        Constants::Pointers => Constant::Integer(0),
        Constants::Names(names) => {
            let named = names
                .iter()
                .find(|(value, _)| number(*value as f64) == number(one));
            named.map_or_else(|| number(one), |(_, name)| Constant::Name(name.clone()))
        }
    };
    (values::Comparison::Equal, constant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_scope as scope;

    fn said(what: &What, statement: Statement) -> Said {
        of(what, statement, &scope::parse("f[>= p95]").unwrap())
    }

    fn place(text: &str) -> What {
        What::Place(scope::parse(text).unwrap().steps.remove(0).place)
    }

    #[test]
    fn each_statement_has_a_scope_that_selects_it() {
        let value = |constants| What::Value(profiler_scope::expression::parse("req->n").unwrap(), constants);
        let n = value(Constants::Numbers);
        let names = vec![(1, "RED".to_owned()), (2, "GREEN".to_owned())];
        for (what, statement, text, next) in [
            (
                n.clone(),
                Statement::Above(4096.0),
                "req->n > 4096",
                "f[>= p95][req->n > 4096]",
            ),
            (
                n.clone(),
                Statement::AtMost(-1.5),
                "req->n <= -1.5",
                "f[>= p95][req->n <= -1.5]",
            ),
            (n, Statement::Is(2.0), "req->n == 2", "f[>= p95][req->n == 2]"),
            (
                value(Constants::Pointers),
                Statement::Is(1.0),
                "req->n != 0",
                "f[>= p95][req->n != 0]",
            ),
            (
                value(Constants::Booleans),
                Statement::Is(1.0),
                "req->n == true",
                "f[>= p95][req->n == true]",
            ),
            (
                value(Constants::Names(names)),
                Statement::Is(2.0),
                "req->n == GREEN",
                "f[>= p95][req->n == GREEN]",
            ),
            (
                place("main.c:12!taken"),
                Statement::Happened,
                "main.c:12!taken",
                "f[>= p95]/main.c:12!taken",
            ),
            (
                place("recv@main.c:12"),
                Statement::Above(3_200_000.0),
                "recv@main.c:12[> 3.2ms]",
                "f[>= p95]/recv@main.c:12[> 3.2ms]",
            ),
            (
                place("recv@main.c:12"),
                Statement::Above(0.0),
                "recv@main.c:12",
                "f[>= p95]/recv@main.c:12",
            ),
        ] {
            let said = said(&what, statement);
            assert_eq!((said.text.as_str(), said.next.as_deref()), (text, Some(next)));
            let parsed = scope::parse(next).unwrap();
            assert_eq!(parsed.to_string(), next);
        }
    }

    #[test]
    fn many_calls_lead_to_them() {
        let What::Place(place) = place("recv@main.c:12") else {
            unreachable!();
        };
        let Said { text, next } = said(&What::Many(place), Statement::Happened);
        assert_eq!(
            (text.as_str(), next.as_deref()),
            (
                "more than 63 calls, most of them recv@main.c:12",
                Some("f[>= p95]/recv@main.c:12")
            )
        );
    }

    #[test]
    fn samples_in_a_function_lead_to_it() {
        let scope = scope::parse("f[>= p95]").unwrap();
        let Said { text, next } = of_frame("deep<int>", Some("deep<int>"), &scope);
        assert_eq!(
            (text.as_str(), next.as_deref()),
            ("samples in deep<int>", Some("f[>= p95]/\"deep<int>\""))
        );
        assert_eq!(
            of_frame("copy", None, &scope).next,
            None,
            "no step can be made of it"
        );
    }

    #[test]
    fn little_time_in_a_call_is_no_step() {
        let Said { text, next } = said(&place("recv@main.c:12"), Statement::AtMost(1000.0));
        assert_eq!((text.as_str(), next), ("recv@main.c:12[<= 1us]", None));
        let Said { text, next } = said(&place("recv@main.c:12"), Statement::AtMost(0.0));
        assert_eq!((text.as_str(), next), ("no recv@main.c:12", None));
    }
}
