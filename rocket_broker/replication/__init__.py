"""Replication of the commit log from a master to its slaves, by the HA protocol of Apache RocketMQ 4.9."""
