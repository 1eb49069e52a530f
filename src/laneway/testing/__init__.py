"""What helps to test: programs that use Laneway, and brokers that want to be one."""
