//! Files and arguments with placeholders: `{{name}}`.

use super::PeerError;

/// Values by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values(Vec<(&'static str, String)>);

impl Values {
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, value.into()));
    }

    /// Returns `text` with every placeholder filled. A placeholder without a value is an error, since a peer would start with a broken configuration.
    pub(crate) fn fill(&self, text: &str) -> Result<String, PeerError> {
        let mut filled = text.to_owned();
        for (name, value) in &self.0 {
            filled = filled.replace(&format!("{{{{{name}}}}}"), value);
        }
        match filled.find("{{") {
            Some(at) => Err(PeerError::Template { place: filled[at..].chars().take(40).collect() }),
            None => Ok(filled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Values;

    #[test]
    fn every_place_is_filled_or_named() {
        let mut values = Values::default();
        values.set("port", "80");
        assert_eq!(
            values.fill("listen {{port}}; twice {{port}} {x}").expect("known"),
            "listen 80; twice 80 {x}"
        );
        let error = values.fill("a {{folder}}/b").expect_err("unknown").to_string();
        assert!(error.contains("{{folder}}"), "{error}");
    }
}
