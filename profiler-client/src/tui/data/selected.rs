//! What is selected of a pane's rows, as it is known now.

use profiler_proto::v1;
use profiler_scope::Place;

use super::{
    super::lens::{Item, Lens, LineId},
    CallRow, Data, HitRow, source,
};
use crate::{render::explain::is_file, state::timeline as timeline_state};

impl Data {
    /// The selected line, with the function that it is of.
    #[must_use]
    pub fn selected_line(&self, lens: &Lens) -> Option<(&v1::SourceFunction, &v1::SourceLine)> {
        let source = self.source_shown(lens)?;
        let Some(Item::Line(id)) = lens.selection() else {
            return None;
        };
        let line = source::lines(source).find(|line| source::id(source, line) == *id)?;
        Some((source, line))
    }

    /// The steps that a line can be. Of a recording it is not known what could be probed there: the step of the scope, if it has one
    /// there, and the line itself.
    #[must_use]
    pub fn places(&self, lens: &Lens, source: &v1::SourceFunction, line: &v1::SourceLine) -> Vec<Place> {
        if !lens.is_of_recording() {
            return source::places(source, line);
        }
        let id = source::id(source, line);
        let file = id.file.rsplit('/').next().unwrap_or_default().to_owned();
        if file.is_empty() {
            return Vec::new();
        }
        let is_step = |place: &Place| matches!(place, Place::Branch { .. } | Place::Call { .. });
        let places = self.places_of_scope().into_iter();
        let mut places: Vec<Place> = places
            .filter(|place| is_step(place) && is_at(place, &id))
            .collect();
        places.push(Place::Line { file, line: id.line });
        places
    }

    /// The places of the scope's steps.
    fn places_of_scope(&self) -> Vec<Place> {
        let scope = self.session.as_deref().map(|session| session.scope.as_str());
        let scope = profiler_scope::parse(scope.unwrap_or_default());
        let steps = scope.map(|scope| scope.steps).unwrap_or_default();
        steps.into_iter().map(|step| step.place).collect()
    }

    /// The line of a source that the innermost step at one of its lines is at.
    pub(super) fn line_of_scope<'a>(&self, source: &'a v1::SourceFunction) -> Option<&'a v1::SourceLine> {
        let places = self.places_of_scope();
        let mut places = places.iter().rev();
        places.find_map(|place| source::lines(source).find(|line| is_at(place, &source::id(source, line))))
    }

    /// The step that the selected line is.
    #[must_use]
    pub fn selected_place(&self, lens: &Lens) -> Option<Place> {
        let (source, line) = self.selected_line(lens)?;
        let mut places = self.places(lens, source, line);
        let chosen = lens
            .place
            .as_ref()
            .and_then(|place| places.iter().position(|other| other == place));
        let of_scope = || {
            let steps = self.places_of_scope();
            places.iter().position(|place| steps.contains(place))
        };
        let chosen = chosen.or_else(of_scope).unwrap_or(0);
        (!places.is_empty()).then(|| places.swap_remove(chosen))
    }

    /// The selected hit.
    #[must_use]
    pub fn selected_hit(&self, lens: &Lens) -> Option<&HitRow> {
        match lens.selection() {
            Some(Item::Hit(id)) => self.hits.rows.iter().find(|row| row.id() == *id),
            _ => self.hits_shown(lens).next_back(),
        }
    }

    /// The hits of the screen, oldest first.
    #[must_use]
    pub fn hits_shown(&self, lens: &Lens) -> impl DoubleEndedIterator<Item = &HitRow> {
        self.hits.rows.iter().filter(|row| row.has(&lens.search))
    }

    /// The selected call: the slowest, where none was chosen.
    #[must_use]
    pub fn selected_call(&self, lens: &Lens) -> Option<&CallRow> {
        let rows = &self.aside.calls.rows;
        let chosen = match lens.selection() {
            Some(Item::Call(id)) => rows.iter().find(|row| row.id() == *id),
            _ => None,
        };
        chosen.or_else(|| rows.first())
    }

    /// The selected expression of the selected hit and its value, as a condition has it.
    #[must_use]
    pub fn selected_value(&self, lens: &Lens) -> Option<(String, String)> {
        let values = &self.selected_hit(lens)?.hit.values;
        let chosen = lens.value.as_ref();
        let value = values
            .iter()
            .find(|value| Some(&value.expression) == chosen)
            .or_else(|| values.first())?;
        // As it is, and not as a terminal may show it.
        let text = match (value.state(), value.text.as_str()) {
            (v1::ValueState::Ok, "") => &value.json,
            (v1::ValueState::Ok, text) => text,
            _ => return None,
        };
        Some((value.expression.clone(), text.to_owned()))
    }

    /// The selected one of them.
    #[must_use]
    pub fn selected_finding(&self, lens: &Lens) -> Option<&v1::Finding> {
        match lens.selection() {
            Some(Item::Finding(text)) => self.findings().find(|finding| finding.text == *text),
            _ => None,
        }
    }

    /// The selected node of the tree of waits.
    #[must_use]
    pub fn selected_wait(&self, lens: &Lens) -> Option<&v1::WaitNode> {
        let Some(Item::Wait(path)) = lens.selection() else {
            return None;
        };
        let state = &self.aside.waits;
        let mut numbers = 1..=state.nodes.len();
        let number = numbers.find(|number| state.path(*number) == *path)?;
        state.node(number)
    }

    /// What the selected one is.
    #[must_use]
    pub fn selected_counter(&self, lens: &Lens) -> Option<timeline_state::Row> {
        let Some(Item::Counter(label)) = lens.selection() else {
            return None;
        };
        self.counters()
            .into_iter()
            .find(|drawn| drawn.label == *label)
            .map(|drawn| drawn.row)
    }
}

/// Whether a place is at a line of the source.
fn is_at(place: &Place, id: &LineId) -> bool {
    match place {
        Place::Line { file, line } | Place::Branch { file, line, .. } | Place::Call { file, line, .. } => {
            *line == id.line && is_file(&id.file, file)
        }
        _ => false,
    }
}
