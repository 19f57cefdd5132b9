package metrics

import "time"

// ConfigFlow describes how a process learns of changes made by others.
type ConfigFlow struct {
	Age        time.Duration // how long a change may have gone unnoticed
	FromFile   bool          // the store has not answered yet: limits come from a file
	Polled     uint64        // changes found by polling
	Told       uint64        // commits that the store reported
	Unreadable uint64        // times that a record could not be used
}

// Report adds the metrics of how the process learns of changes.
func (c ConfigFlow) Report(s *Scrape) {
	s.gauge("weir.config.age.seconds", "For how long a change of limits may have gone unnoticed.",
		value(c.Age.Seconds()))
	s.gauge("weir.config.from.file", "1 while limits come from a file because the store has not answered yet.",
		yes(c.FromFile))
	s.count("weir.config.changes", "Changes by other processes that were noticed, by how.",
		value(c.Polled, "by", "poll"), value(c.Told, "by", "store"))
	s.count("weir.config.unreadable",
		"Times that a record could not be used, so that the last known version stayed in force.",
		value(c.Unreadable))
}

// MirrorAge is the age of a cell's configuration: the time since it was last known to equal its source.
type MirrorAge time.Duration

// Report adds the metric of the age.
func (a MirrorAge) Report(s *Scrape) {
	s.gauge("weir.config.mirror.age.seconds",
		"For how long the cell's configuration may have differed from its source.",
		value(time.Duration(a).Seconds()))
}
