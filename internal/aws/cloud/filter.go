package cloud

// The filters of the functions' event sources. Their keys are those of docs/format/dynamodb.md; the tests check the
// filters against records that the store writes.

// bucketRecords matches all changes of buckets, and of the counts that processes store beside them.
func bucketRecords() obj { return sorted("#STATE", "#COUNTS") }

// expiredAudit matches audit events that DynamoDB itself deleted, and no others.
func expiredAudit() obj {
	f := sorted(obj{"prefix": "#AUDIT"})
	f["eventName"] = list{"REMOVE"}
	f["userIdentity"] = obj{"type": list{"Service"}, "principalId": list{"dynamodb.amazonaws.com"}}
	return f
}

// configRecords matches changes of entities, limits and namespaces.
func configRecords() obj {
	return sorted(obj{"prefix": "#META"}, obj{"prefix": "#CONFIG"}, obj{"prefix": "#NAMESPACE"}, obj{"prefix": "#NSID"})
}

// sorted matches by range key.
func sorted(keys ...any) obj {
	return obj{"dynamodb": obj{"Keys": obj{sortKey: obj{"S": keys}}}}
}

// filter returns a filter in the form that an event source mapping takes: a string.
func filter(pattern obj) obj { return obj{"Pattern": compact(pattern)} }
