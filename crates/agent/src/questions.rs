// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests that the user made by a notification's buttons, until the daemon has answered them.

use std::collections::VecDeque;

use limelight_proto::{ErrorCode, Request, Response};

use crate::notify::{Purpose, Question};

/// Maximum number of questions without an answer. More are refused.
const QUESTIONS_MAX: usize = 8;

/// Questions for the daemon, in order.
#[derive(Debug, Default)]
pub struct Questions {
    waiting: VecDeque<Question>,
    /// Sent, and without an answer.
    asked: VecDeque<Purpose>,
    answers: Vec<(Purpose, Response)>,
}

impl Questions {
    /// Adds a question.
    pub fn add(&mut self, question: Question) {
        if self.waiting.len() + self.asked.len() < QUESTIONS_MAX {
            self.waiting.push_back(question);
        } else {
            self.answers
                .push((question.1, unanswered("limelightd is slow")));
        }
    }

    /// The next request to send. It counts as sent.
    pub fn send_next(&mut self) -> Option<Request> {
        let (request, purpose) = self.waiting.pop_front()?;
        self.asked.push_back(purpose);
        Some(request)
    }

    /// Takes the daemon's answer to the oldest request.
    pub fn answered(&mut self, answer: Response) {
        let purpose = self.asked.pop_front();
        self.answers
            .extend(purpose.map(|purpose| (purpose, answer)));
    }

    /// Answers all questions, because there is no connection to the daemon.
    pub fn give_up(&mut self) {
        let waiting = self.waiting.drain(..).map(|(_, purpose)| purpose);
        for purpose in self.asked.drain(..).chain(waiting) {
            let answer = unanswered("limelightd cannot be reached");
            self.answers.push((purpose, answer));
        }
    }

    /// Takes the answers.
    pub fn take_answers(&mut self) -> Vec<(Purpose, Response)> {
        std::mem::take(&mut self.answers)
    }
}

fn unanswered(why: &str) -> Response {
    Response::Error {
        code: ErrorCode::Internal,
        message: why.to_owned(),
        cure: "see limelight doctor".to_owned(),
        retry_ms: None,
    }
}
