"""Studies: everything about one task in one place (environment, rules, demonstrations, pictures, published figures)."""
