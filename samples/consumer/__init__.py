"""The book's consumer: prints what arrives from topic TopicTest."""
