"""What the driver knows of each input format: recognition, options, plan."""
