"""How much clients may ask and keep: shares, rates, and the refusal that says so."""
