"""What a report is made of: the table of all runs, and the pages that show it."""
