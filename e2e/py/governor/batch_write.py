from common import item, show, table

with table.batch_writer() as batch:
    for i in range(240):
        batch.put_item(Item=item(i))
show("written")
