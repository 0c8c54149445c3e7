DROP INDEX events_selection_once;
