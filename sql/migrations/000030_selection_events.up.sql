-- The events of a task's selections are also the memory of its request keys: a key is
-- scheduled once and applied once, for as long as the task lives.
CREATE UNIQUE INDEX events_selection_once ON events (issue_id, (data ->> 'requestKey'), kind)
    WHERE kind IN ('selection.scheduled', 'selection.applied');
