"""Access control: accounts in `plain_acl.yml` as RocketMQ 4.9 has them, or users and policies as 5.3 has them.

::

    needs            what a request needs: an account, an administrator, rights; for 5.3, actions on resources
    signature        whether a request is signed by a secret key
    audit_log        records administrative requests, and those that are refused

    access_control   4.9: checks a request before it is handled; follows and changes the files
    account          an account with its rights, and the rules of all files together
    acl_file         reads and writes a file of accounts
    remote_address   addresses whose requests need no signature

    policy_control   5.3: checks a request before it is handled
    policies         which entry of a user's policies decides
    user_directory   the users and policies in the broker's store
"""
