"""Access control as RocketMQ 4.9 has it: accounts in `plain_acl.yml`, signed requests, rights on topics and groups.

::

    needs            what a request needs: an account, an administrator, rights on topics and groups
    access_control   checks a request before it is handled; follows and changes the files
    account          an account with its rights, and the rules of all files together
    acl_file         reads and writes a file of accounts
    remote_address   addresses whose requests need no signature
"""
