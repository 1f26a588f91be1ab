"""Administration of topics, groups, offsets, brokers and messages; `admin.py` has the class that applications use.

A file has the requests about one noun. They share a client, which `requests.py` starts and ends.
"""

from rocket_client.admin.admin import Admin as Admin
from rocket_client.admin.topics import ORDER_TOPIC_CONFIG as ORDER_TOPIC_CONFIG
