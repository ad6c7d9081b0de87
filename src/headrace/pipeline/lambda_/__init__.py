"""The Lambda architecture: the batch layer, the speed layer, and the store that combines both."""
