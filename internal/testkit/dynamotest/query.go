package dynamotest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// maxPage is the maximum size of a query's page in bytes.
const maxPage = 1 << 20

// lookupQuery is a validated query.
type lookupQuery struct {
	table  *table
	idx    *index // nil: the table itself
	key    schema
	where  *bound
	hash   types.AttributeValue
	filter *bound
	paths  []*bound
}

// page returns a page of the query's result, and its size.
func (q *lookupQuery) page(in *dynamodb.QueryInput) (out *dynamodb.QueryOutput, size int, err error) {
	found := q.find()
	forward := in.ScanIndexForward == nil || *in.ScanIndexForward
	if !forward {
		slices.Reverse(found)
	}
	if in.ExclusiveStartKey != nil {
		start, err := q.start(in.ExclusiveStartKey)
		if err != nil {
			return nil, 0, err
		}
		found = slices.DeleteFunc(found, func(it item) bool {
			order := q.compare(it, start)
			return order == 0 || (order < 0) == forward
		})
	}
	out = &dynamodb.QueryOutput{}
	for i, it := range found {
		entry := it
		if q.idx != nil {
			entry = q.idx.entry(it)
		}
		size += ItemSize(entry)
		out.ScannedCount++
		if q.filter.holds(entry) {
			out.Count++
			if q.paths != nil {
				entry = project(entry, q.paths)
			}
			if in.Select != types.SelectCount {
				out.Items = append(out.Items, clone(entry))
			}
		}
		full := in.Limit != nil && i+1 == int(*in.Limit)
		if full || size > maxPage && i+1 < len(found) {
			out.LastEvaluatedKey = clone(q.table.key.of(it))
			if q.idx != nil {
				maps.Copy(out.LastEvaluatedKey, clone(q.idx.key.of(it)))
			}
			break
		}
	}
	if out.Items == nil && in.Select != types.SelectCount {
		out.Items = []item{}
	}
	return out, size, nil
}

func newQuery(t *table, in *dynamodb.QueryInput) (*lookupQuery, error) {
	q := &lookupQuery{table: t, key: t.key}
	if in.IndexName != nil {
		if q.idx = t.indexes[*in.IndexName]; q.idx == nil {
			return nil, invalid("The table does not have the specified index: %s", *in.IndexName)
		}
		q.key = q.idx.key
	}
	s := newScope(in.ExpressionAttributeNames, in.ExpressionAttributeValues)
	q.where, q.filter = s.condition(in.KeyConditionExpression), s.condition(in.FilterExpression)
	q.paths = s.projection(in.ProjectionExpression)
	if err := s.done(); err != nil {
		return nil, err
	}
	switch {
	case q.where == nil:
		return nil, invalid(
			"Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.",
		)
	case in.Limit != nil && *in.Limit < 1:
		return nil, invalid(
			"Value at 'limit' failed to satisfy constraint: Member must have value greater than or equal to 1",
		)
	case q.idx != nil && aws.ToBool(in.ConsistentRead):
		return nil, invalid("Consistent reads are not supported on global secondary indexes")
	case q.filter.mentions(q.key.names):
		return nil, invalid("Filter Expression can only contain non-primary key attributes")
	case !q.projects(append(q.paths, q.filter)...):
		return nil, invalid(
			"One or more parameter values were invalid: Global secondary index %s does not project an attribute that "+
				"is asked for",
			*in.IndexName,
		)
	case in.Select == types.SelectCount && q.paths != nil:
		return nil, invalid("Cannot specify the ProjectionExpression when choosing to get only the Count")
	case in.Select == types.SelectAllAttributes && q.idx != nil &&
		q.idx.projection.ProjectionType != types.ProjectionTypeAll:
		return nil, invalid("Select type ALL_ATTRIBUTES is not supported for this global secondary index")
	}
	return q, q.split()
}

// mentions reports whether an expression refers to any of these attributes.
func (b *bound) mentions(names []string) bool {
	return b != nil && (len(b.path) > 0 && slices.Contains(names, b.path[0].name) ||
		slices.ContainsFunc(b.args, func(arg *bound) bool { return arg.mentions(names) }))
}

// projects reports whether the index contains everything that the expressions refer to.
func (q *lookupQuery) projects(about ...*bound) bool {
	if q.idx == nil || q.idx.projection.ProjectionType == types.ProjectionTypeAll {
		return true
	}
	has := slices.Concat(q.idx.key.names, q.idx.base.names, q.idx.projection.NonKeyAttributes)
	return !slices.ContainsFunc(about, func(b *bound) bool {
		return b != nil && (len(b.path) > 0 && !slices.Contains(has, b.path[0].name) || !q.projects(b.args...))
	})
}

// split finds the hash in the condition: hash = :value, alone or with a condition on the range.
func (q *lookupQuery) split() error {
	terms := []*bound{q.where}
	if q.where.op == "AND" {
		terms = q.where.args
	}
	for i, name := range q.key.names[:min(len(q.key.names), len(terms))] {
		match := slices.IndexFunc(terms, func(b *bound) bool {
			return len(b.args) > 1 && b.args[0].op == "path" && len(b.args[0].path) == 1 &&
				b.args[0].path[0].name == name &&
				!slices.ContainsFunc(b.args[1:], func(arg *bound) bool { return arg.op != "value" })
		})
		allowed := []string{"="}
		if i > 0 {
			allowed = []string{"=", "<", "<=", ">", ">=", "BETWEEN", "begins_with"}
		}
		if match < 0 || !slices.Contains(allowed, terms[match].op) {
			return invalid("Query condition missed key schema element: %s, or Query key condition not supported", name)
		}
		for _, arg := range terms[match].args[1:] {
			if err := q.key.check(name, arg.value); err != nil {
				return err
			}
		}
		if i == 0 {
			q.hash = terms[match].args[1].value
		}
	}
	if len(terms) > len(q.key.names) {
		return invalid("Query key condition not supported")
	}
	return nil
}

// find returns the items that match the query, in order.
func (q *lookupQuery) find() []item {
	var found []item
	for _, it := range q.table.items {
		if v := it[q.key.names[0]]; v == nil || !equal(v, q.hash) || q.idx != nil && q.idx.entry(it) == nil ||
			!q.where.holds(it) {
			continue
		}
		found = append(found, it)
	}
	slices.SortFunc(found, q.compare)
	return found
}

// compare orders by the key of the index, then by that of the table.
func (q *lookupQuery) compare(a, b item) int {
	return cmp.Or(q.key.compare(a, b), q.table.key.compare(a, b))
}

// start returns the key after which a query continues.
func (q *lookupQuery) start(key item) (item, error) {
	key, err := normalItem(key)
	if err != nil {
		return nil, err
	}
	names := slices.Concat(q.key.names, q.table.key.names)
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		if q.key.check(name, key[name]) != nil {
			return nil, invalid("The provided starting key is invalid")
		}
	}
	if len(names) != len(key) || !q.where.holds(key) {
		return nil, invalid("The provided starting key is outside query boundaries based on provided conditions")
	}
	return key, nil
}
