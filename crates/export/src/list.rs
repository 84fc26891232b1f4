//! Lists in JSON, written as text: values of all stacks would take many times their room.

/// Writes a list, each item by `write`.
pub fn list<T>(text: &mut String, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut String, T)) {
    text.push('[');
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        write(text, item);
    }
    text.push(']');
}
