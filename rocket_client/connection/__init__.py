"""The connections of one client id: name servers, routes, heartbeats, requests of brokers."""
