package dynamodb

// carry adds a job to a batch.
func (sh *shard) carry(b *batch, j *job) {
	b.jobs = append(b.jobs, j)
	b.alone = b.alone || j.back != nil
	switch {
	case !j.counted:
	case j.kind == give:
		b.undone++
	default:
		b.takes++
	}
	if j.kind == take && j.v.own {
		b.own, b.set, b.epoch = true, j.v.set, j.epoch
	}
	if j.shadow != nil {
		b.leaveOut(j)
	}
	if j.undo != nil {
		b.latest = min(b.latest, j.undo.latest)
	}
	for i, a := range j.amounts {
		if len(j.back) > 0 && j.back[i] > 0 {
			p := sh.partOf(b, j, i)
			p.back, p.given = p.back+j.back[i], p.given+j.back[i]
		}
		if j.kind != take && a == 0 {
			continue
		}
		if j.leftOut(i) {
			sh.partOf(b, j, i).taken = true
			continue
		}
		p := sh.partOf(b, j, i)
		if j.kind == give {
			p.back += a
			switch u := j.undo; {
			case u == nil:
				p.given += a
			case u.rooms[i] < anything:
				p.room = min(p.room, u.rooms[i])
			default:
				p.low = true
			}
			continue
		}
		p.taken = p.taken || j.kind == take
		p.sum += a
		if !j.unbound(i) {
			p.bound = p.sum
		}
	}
}

// partOf returns the batch's part for a job's limit, and adds it if there is none.
func (sh *shard) partOf(b *batch, j *job, i int) *part {
	name := j.v.names[i]
	if p := b.part(name); p != nil {
		return p
	}
	p := part{name: name, attrs: &j.v.attrs[i], limit: j.v.limits[i], params: j.v.params[i], bound: -1, room: anything}
	if it := sh.seen; it != nil && it.exists {
		if l := it.find(name); l != nil {
			p.known, p.has, p.level = true, l.has, l.level
			if j.kind != take {
				p.params = l.params // a settle means the bucket's own limit of that name
			}
		}
	}
	if !p.known && p.limit.Override && j.kind != give && (j.kind == take || j.amounts[i] > 0) {
		b.added++
	}
	b.parts = append(b.parts, p)
	return &b.parts[len(b.parts)-1]
}
