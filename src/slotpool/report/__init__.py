"""Pages for people: plots as inline SVG in one file of HTML that needs no other. Measures nothing: it is given data and draws it."""
