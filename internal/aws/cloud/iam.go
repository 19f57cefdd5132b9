package cloud

import "strings"

// calls lists exactly the calls that the code makes in a role. The tests record the calls, and fail if either side
// has more. A transaction counts as one call per part, because that is how IAM sees it.
type calls struct{ table, indexes []string }

var (
	acquire = calls{
		table: []string{"BatchGetItem", "PutItem", "UpdateItem"},
	}
	read = calls{
		table:   []string{"BatchGetItem", "DescribeTable", "DescribeTimeToLive", "GetItem", "Query"},
		indexes: []string{"Query"},
	}
	full = calls{
		table:   []string{"BatchGetItem", "ConditionCheckItem", "DeleteItem", "DescribeTable", "DescribeTimeToLive", "GetItem", "PutItem", "Query", "UpdateItem"},
		indexes: []string{"Query"},
	}
	provision = calls{
		table:   []string{"BatchGetItem", "ConditionCheckItem", "DeleteItem", "PutItem", "Query", "UpdateItem"},
		indexes: []string{"Query"},
	}
	aggregate = calls{
		table: []string{"BatchGetItem", "PutItem", "UpdateItem"},
	}
	// weir aggregate finds the stream, and its other readers, by itself.
	aggregateCommand = calls{
		table: []string{"BatchGetItem", "DescribeTable", "PutItem", "Query", "UpdateItem"},
	}
	// A tenant's calls, limited to one namespace. They do not reach items shared by all namespaces, and so not the
	// IDs of leases that are handed from process to process.
	tenantAcquire = calls{table: []string{"BatchGetItem", "PutItem", "UpdateItem"}}
	tenantRead    = calls{table: []string{"BatchGetItem", "Query"}, indexes: []string{"Query"}}
	tenantFull    = calls{
		table:   []string{"BatchGetItem", "ConditionCheckItem", "DeleteItem", "PutItem", "Query", "UpdateItem"},
		indexes: []string{"Query"},
	}
)

// scope says on whose items calls may be made.
type scope bool

const (
	onTable     scope = false
	onNamespace scope = true // the items of the principal's namespace
)

func (p *Params) policies(s *stack) {
	if p.NoIAM || p.NoPolicies {
		return
	}
	for _, one := range []struct {
		id, suffix, what string
		may              list
		role             string
	}{
		{"AcquirePolicy", "acq", "Decide: debit, adjust, return", p.may(s, acquire, onTable), "AcquireRole"},
		{"ReadPolicy", "read", "Look, and change nothing", p.may(s, read, onTable), "ReadRole"},
		{"FullPolicy", "full", "Decide, look and configure", p.may(s, full, onTable), "FullRole"},
		{"NamespaceAcquirePolicy", "ns-acq", "Decide in the principal's namespace", p.may(s, tenantAcquire, onNamespace), ""},
		{"NamespaceReadPolicy", "ns-read", "Look at the principal's namespace", p.may(s, tenantRead, onNamespace), ""},
		{"NamespaceFullPolicy", "ns-full", "Decide, look and configure in the principal's namespace", p.may(s, tenantFull, onNamespace), ""},
	} {
		p.policy(s, one.id, one.suffix, one.what, one.may)
		if p.Roles && one.role != "" {
			p.role(s, one.role, one.suffix, obj{"AWS": anyList(p.Trust)}, obj{"ManagedPolicyArns": list{ref(one.id)}})
			s.out(one.role+"Arn", one.what, att{one.role, "Arn"})
		}
	}
	if p.NoAggregator {
		p.policy(s, "AggregatePolicy", "aggr", "Run weir aggregate", append(p.may(s, aggregateCommand, onTable), streamReads("Table")...))
	}
	if !p.NoProvisioner {
		p.policy(s, "ApplyPolicy", "apply", "Plan and apply manifests by the provisioner, without rights on the table",
			list{obj{"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": att{"Provisioner", "Arn"}}})
	}
}

func (p *Params) policy(s *stack, id, suffix, what string, may list) {
	s.add(id, "AWS::IAM::ManagedPolicy", obj{
		"ManagedPolicyName": p.named(p.PolicyNameFormat, suffix), "Description": "weir: " + what, "PolicyDocument": document(may...),
	})
	s.out(id+"Arn", what, ref(id))
}

func (p *Params) role(s *stack, id, suffix string, who, more obj) {
	more["RoleName"] = p.named(p.RoleNameFormat, suffix)
	more["AssumeRolePolicyDocument"] = document(obj{"Effect": "Allow", "Principal": who, "Action": "sts:AssumeRole"})
	switch b := p.PermissionBoundary; {
	case strings.HasPrefix(b, "arn:"):
		more["PermissionsBoundary"] = b
	case b != "":
		more["PermissionsBoundary"] = sub("arn:${AWS::Partition}:iam::${AWS::AccountId}:policy/" + b)
	}
	s.add(id, "AWS::IAM::Role", more)
}

func (p *Params) named(format, suffix string) string {
	name := p.Stack + "-" + suffix
	if format == "" {
		return name
	}
	return strings.Replace(format, "{}", name, 1)
}

// longest returns the length of the longest name of a role or policy before its format is applied.
func (p *Params) longest(kind string) int {
	if kind == "role" {
		return len(p.Stack) + len("-config")
	}
	return len(p.Stack) + len("-ns-full")
}

// may allows calls on the table and its indexes.
func (p *Params) may(_ *stack, c calls, on scope) list {
	var out list
	for _, side := range []struct {
		actions  []string
		resource any
	}{{c.table, att{"Table", "Arn"}}, {c.indexes, sub("${Table.Arn}/index/*")}} {
		if len(side.actions) == 0 {
			continue
		}
		st := obj{"Effect": "Allow", "Action": prefixed("dynamodb:", side.actions), "Resource": side.resource}
		if on == onNamespace {
			// ForAllValues is true for a call without keys, so the second condition refuses those.
			st["Condition"] = obj{
				"ForAllValues:StringLike": obj{"dynamodb:LeadingKeys": "${aws:PrincipalTag/" + p.NamespaceTag + "}/*"},
				"Null":                    obj{"dynamodb:LeadingKeys": "false"},
			}
		}
		out = append(out, st)
	}
	if p.KMSKey != "" { // DynamoDB checks whether its caller may use the key
		out = append(out, obj{
			"Effect": "Allow", "Action": list{"kms:Decrypt", "kms:DescribeKey"}, "Resource": p.KMSKey,
			"Condition": obj{"StringEquals": obj{"kms:ViaService": sub("dynamodb.${AWS::Region}.amazonaws.com")}},
		})
	}
	return out
}

func document(statements ...any) obj {
	return obj{"Version": "2012-10-17", "Statement": statements}
}

func prefixed(prefix string, names []string) list {
	var out list
	for _, n := range names {
		out = append(out, prefix+n)
	}
	return out
}

func anyList(texts []string) list {
	var out list
	for _, t := range texts {
		out = append(out, t)
	}
	return out
}
