"""What the systems are compared with: foils made of the systems' own parts, with other parameters and policies."""
