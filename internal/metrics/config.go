package metrics

import "time"

// ConfigFlow is how a process learns what others change.
type ConfigFlow struct {
	Age        time.Duration // since when a change may have gone unnoticed
	FromFile   bool          // the store has not answered yet: limits are those of a file
	Polled     uint64        // changes found by polling
	Told       uint64        // commits that the store told of
	Unreadable uint64        // times that a record could not be used
}

// WatchConfig has how the process learns of changes among the figures.
func (m *Metrics) WatchConfig(f func() ConfigFlow) { m.config.Store(&f) }

// WatchMirror has the age of a cell's configuration among the figures: since it was last seen to be that of its source.
func (m *Metrics) WatchMirror(f func() time.Duration) { m.mirror.Store(&f) }

// configuration adds how the process learns of changes.
func (m *Metrics) configuration(s *scrape) {
	if f := m.config.Load(); f != nil {
		c := (*f)()
		var file float64
		if c.FromFile {
			file = 1
		}
		s.gauge("weir.config.age.seconds", "Since when a change of limits may have gone unnoticed.", point[float64]{v: c.Age.Seconds()})
		s.gauge("weir.config.from.file", "1 while limits are those of a file, since the store has not answered yet.", point[float64]{v: file})
		s.count("weir.config.changes", "Changes by others that were noticed, by how.",
			point[int64]{int64(c.Polled), []string{"by", "poll"}}, point[int64]{int64(c.Told), []string{"by", "store"}})
		s.count("weir.config.unreadable", "Times that a record could not be used, and what was known before served on.", point[int64]{v: int64(c.Unreadable)})
	}
	if f := m.mirror.Load(); f != nil {
		s.gauge("weir.config.mirror.age.seconds", "Since when the cell's configuration may differ from its source's.", point[float64]{v: (*f)().Seconds()})
	}
}
