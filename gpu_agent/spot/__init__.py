"""Does the cloud say that it will take this machine away?"""
