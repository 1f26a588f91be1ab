"""The book's producer: `/send?msg=…` on `server.port` sends to topic TopicTest."""
