// SPDX-License-Identifier: GPL-2.0-or-later
//! PipeWire's data format (POD), as far as messages about clients and nodes need it: integers,
//! strings, and structures of them, in the machine's byte order.

/// Type numbers of the format.
const ID: u32 = 3;
const INT: u32 = 4;
const LONG: u32 = 5;
const STRING: u32 = 8;
const STRUCT: u32 = 14;

/// Every value starts at a multiple of this.
const ALIGNMENT: usize = 8;

/// Bytes before each value: its size and its type.
const HEAD: usize = 8;

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Id(u32),
    Int(i32),
    Long(i64),
    /// Without the NUL that ends it.
    Text(&'a str),
    Struct(Values<'a>),
    /// Any other type, or none.
    Other,
}

/// The values of a structure that have not been read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// The values of the structure that a message consists of; `None` if it is malformed.
    pub fn of_message(message: &'a [u8]) -> Option<Values<'a>> {
        match Values(message).next()? {
            Value::Struct(values) => Some(values),
            _ => None,
        }
    }

    /// The next value if it is an integer or an id, as an unsigned number.
    pub fn number(&mut self) -> Option<u32> {
        match self.next()? {
            Value::Int(number) => Some(number.cast_unsigned()),
            Value::Id(number) => Some(number),
            _ => None,
        }
    }

    /// The next value if it is text.
    pub fn text(&mut self) -> Option<&'a str> {
        match self.next()? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The next value if it is a structure of properties: their number, then pairs of key and value.
    pub fn properties(&mut self) -> Option<impl Iterator<Item = (&'a str, &'a str)>> {
        let Value::Struct(mut values) = self.next()? else {
            return None;
        };
        values.number()?;
        Some(std::iter::from_fn(move || {
            Some((values.text()?, values.text()?))
        }))
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let word = |at: usize| -> Option<u32> {
            let bytes = self.0.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let size = usize::try_from(word(0)?).ok()?;
        let kind = word(4)?;
        let body = self.0.get(HEAD..HEAD.checked_add(size)?)?;
        // The last value may lack its padding.
        let end = HEAD + size.next_multiple_of(ALIGNMENT);
        self.0 = self.0.get(end..).unwrap_or_default();
        let int = || Some(i32::from_ne_bytes(body.get(..4)?.try_into().ok()?));
        let long = || Some(i64::from_ne_bytes(body.get(..8)?.try_into().ok()?));
        let text = || {
            let end = body.iter().position(|byte| *byte == 0)?;
            std::str::from_utf8(&body[..end]).ok()
        };
        let value = match kind {
            ID => int().map(|id| Value::Id(id.cast_unsigned())),
            INT => int().map(Value::Int),
            LONG => long().map(Value::Long),
            STRING => text().map(Value::Text),
            STRUCT => Some(Value::Struct(Values(body))),
            _ => None,
        };
        Some(value.unwrap_or(Value::Other))
    }
}

/// Builds a structure.
#[derive(Debug, Default)]
pub struct Builder(Vec<u8>);

impl Builder {
    fn value(mut self, kind: u32, body: &[u8]) -> Builder {
        let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
        self.0.extend(size.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(body);
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    pub fn int(self, number: u32) -> Builder {
        self.value(INT, &number.to_ne_bytes())
    }

    #[cfg(test)]
    pub fn id(self, number: u32) -> Builder {
        self.value(ID, &number.to_ne_bytes())
    }

    #[cfg(test)]
    pub fn long(self, number: i64) -> Builder {
        self.value(LONG, &number.to_ne_bytes())
    }

    pub fn text(self, text: &str) -> Builder {
        self.value(STRING, &[text.as_bytes(), &[0]].concat())
    }

    /// A structure of properties.
    pub fn properties(self, all: &[(&str, &str)]) -> Builder {
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let inner = all
            .iter()
            .fold(Builder::default().int(count), |inner, (key, value)| {
                inner.text(key).text(value)
            });
        self.value(STRUCT, &inner.0)
    }

    /// The structure, as a message.
    pub fn message(self) -> Vec<u8> {
        Builder::default().value(STRUCT, &self.0).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn message_is_read_as_it_was_built() {
        let message = Builder::default()
            .int(7)
            .text("seven")
            .properties(&[("a", "1"), ("b", "")])
            .id(3)
            .long(-1)
            .message();
        // As PipeWire encodes the integer 7 at the start of a structure.
        assert_eq!(
            message[8..20],
            [[4u8, 0, 0, 0], [4, 0, 0, 0], [7, 0, 0, 0]].concat()
        );
        let mut values = Values::of_message(&message).unwrap();
        assert_eq!(values.number(), Some(7));
        assert_eq!(values.text(), Some("seven"));
        let properties: Vec<_> = values.properties().unwrap().collect();
        assert_eq!(properties, [("a", "1"), ("b", "")]);
        assert_eq!(values.number(), Some(3));
        assert_eq!(values.next(), Some(Value::Long(-1)));
        assert_eq!(values.next(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let values = Values::of_message(&bytes);
            prop_assert!(values.is_none_or(|values| values.count() <= bytes.len() / HEAD));
        }
    }
}
