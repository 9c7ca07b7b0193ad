"""Pictures of real values, each with a text twin; nothing else imports them."""
